// Follows a job's log: chunks arrive as server-sent events from where the page's own text ends. The view follows the
// end while it is at the end, and stays where it is when the reader has scrolled up.
(() => {
  "use strict";
  const pre = document.querySelector("pre[data-log]");
  if (!pre) return;
  const code = pre.querySelector("code");
  const state = document.getElementById("log-state");
  const jump = document.getElementById("log-end");
  const wrap = document.getElementById("log-wrap");
  let number = Number(pre.dataset.lines);
  let style = { colour: null, bold: false, faint: false, line: false };
  let open = null; // the unfinished last line
  let tail = "";

  const apply = (codes) => {
    for (let i = 0; i < codes.length; i += 1) {
      const code = codes[i];
      if (code === 0) style = { colour: null, bold: false, faint: false, line: false };
      else if (code === 1) style.bold = true;
      else if (code === 2) style.faint = true;
      else if (code === 4) style.line = true;
      else if (code === 22) { style.bold = false; style.faint = false; }
      else if (code === 24) style.line = false;
      else if (code >= 30 && code <= 37) style.colour = code - 30;
      else if (code === 39) style.colour = null;
      else if (code >= 90 && code <= 97) style.colour = code - 82;
      else if (code === 38 || code === 48) {
        const kind = codes[i + 1];
        if (code === 38 && kind === 5) style.colour = codes[i + 2] < 16 ? codes[i + 2] : null;
        i += kind === 2 ? 4 : 2;
      }
    }
  };
  const classes = () => [style.colour === null ? "" : `a${style.colour}`, style.bold ? "bold" : "", style.faint ? "faint" : "", style.line ? "line" : ""].filter(Boolean).join(" ");

  // The same as ansi.rs: SGR becomes classes, a carriage return starts the line again, the rest is dropped.
  const fill = (element, text) => {
    element.replaceChildren(element.firstChild);
    const clean = text.replace(/\r$/, "");
    const from = clean.lastIndexOf("\r") + 1;
    const pattern = /\x1b\[([0-9;]*)m|\x1b\[[^@-~]*[@-~]?|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?|[^\x1b]+/g;
    for (const match of clean.matchAll(pattern)) {
      if (match[1] !== undefined) apply(match[1].split(";").map((one) => Number(one) || 0));
      else if (match[0][0] !== "\x1b") {
        const end = match.index + match[0].length;
        if (end <= from) continue;
        const shown = match[0].slice(Math.max(0, from - match.index)).replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f]/g, "");
        if (!shown) continue;
        const name = classes();
        if (name) {
          const span = document.createElement("span");
          span.className = name;
          span.textContent = shown;
          element.append(span);
        } else element.append(shown);
      }
    }
  };
  const line = () => {
    number += 1;
    const element = document.createElement("span");
    element.className = "ln";
    element.id = `L${number}`;
    const anchor = document.createElement("a");
    anchor.href = `#L${number}`;
    anchor.textContent = String(number);
    element.append(anchor);
    code.append(element);
    return element;
  };

  let waiting = "";
  let frame = 0;
  const following = () => pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 40;
  const flush = () => {
    frame = 0;
    const follow = following();
    const parts = (tail + waiting).split("\n");
    waiting = "";
    tail = parts.pop();
    // the style at the start of the open line is needed again when it grows
    for (const text of parts) {
      if (open) style = open.style;
      const element = open ? open.element : line();
      open = null;
      fill(element, text);
    }
    if (tail) {
      if (!open) open = { element: line(), style: { ...style } };
      style = { ...open.style };
      fill(open.element, tail);
    }
    pre.hidden = false;
    const none = document.getElementById("log-none");
    if (none) none.hidden = true;
    if (follow) pre.scrollTop = pre.scrollHeight;
    else jump.hidden = false;
  };
  const add = (text) => {
    waiting += text;
    // at most ten repaints a second
    if (!frame) frame = setTimeout(flush, 100);
  };

  pre.addEventListener("scroll", () => { jump.hidden = following(); });
  jump.addEventListener("click", () => { pre.scrollTop = pre.scrollHeight; });
  wrap.hidden = false;
  const setWrap = (on) => {
    pre.classList.toggle("wrap", on);
    wrap.setAttribute("aria-pressed", String(on));
  };
  try { setWrap(localStorage.getItem("sluice.wrap") === "1"); } catch { setWrap(false); }
  wrap.addEventListener("click", () => {
    const on = !pre.classList.contains("wrap");
    setWrap(on);
    try { localStorage.setItem("sluice.wrap", on ? "1" : "0"); } catch { /* lasts for this page */ }
  });

  const showHash = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (target && pre.contains(target)) target.scrollIntoView({ block: "center" });
    return Boolean(target);
  };
  window.addEventListener("hashchange", showHash);
  if (!showHash()) pre.scrollTop = pre.scrollHeight;

  if (pre.dataset.follow !== "1") return;
  // the page ended inside a line: take that line back and let it grow
  if (pre.dataset.open === "1" && code.lastElementChild) {
    tail = pre.dataset.tail || "";
    open = { element: code.lastElementChild, style: { ...style } };
  }
  const query = new URLSearchParams({ follow: "1", from: pre.dataset.next });
  if (pre.dataset.attempt !== "0") query.set("attempt", pre.dataset.attempt);
  const source = new EventSource(`/api/v1/jobs/${pre.dataset.job}/logs?${query}`);
  source.addEventListener("open", () => { state.textContent = "live"; });
  source.addEventListener("chunk", (event) => { add(JSON.parse(event.data).content); });
  source.addEventListener("error", () => { state.textContent = "reconnecting"; });
  source.addEventListener("end", () => {
    source.close();
    state.textContent = "complete";
    document.dispatchEvent(new Event("sluice:log-end"));
  });
})();
