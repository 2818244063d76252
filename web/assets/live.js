// Keeps the regions of a page fresh: a notice from the server makes the page fetch itself and change what differs,
// in place. Scroll, focus, open details and text typed into fields stay.
(() => {
  "use strict";
  const topics = document.body.dataset.live;
  if (!topics || !window.EventSource) return;
  const light = document.getElementById("live");
  const say = (state, word) => {
    light.hidden = false;
    light.dataset.state = state;
    light.querySelector("span").textContent = word;
  };

  const same = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || "") === (b.id || "");
  const patch = (now, next) => {
    if (now.isEqualNode(next)) return;
    if (now.nodeType !== Node.ELEMENT_NODE) {
      if (now.nodeValue !== next.nodeValue) now.nodeValue = next.nodeValue;
      return;
    }
    if (now.hasAttribute("data-chart") || now.hasAttribute("data-log")) return;
    for (const { name } of [...now.attributes]) {
      const keep = name === "open" && now.nodeName === "DETAILS";
      if (!next.hasAttribute(name) && !keep) now.removeAttribute(name);
    }
    for (const { name, value } of next.attributes) {
      if (now.getAttribute(name) !== value) now.setAttribute(name, value);
    }
    const wanted = [...next.childNodes];
    const present = [...now.childNodes];
    wanted.forEach((child, index) => {
      const old = present[index];
      if (!old) now.append(document.importNode(child, true));
      else if (same(old, child)) patch(old, child);
      else old.replaceWith(document.importNode(child, true));
    });
    for (const extra of present.slice(wanted.length)) extra.remove();
  };

  let running = false;
  let again = false;
  let last = 0;
  const refresh = async () => {
    if (running) { again = true; return; }
    running = true;
    const pause = Math.max(0, 700 - (Date.now() - last));
    if (pause) await new Promise((resolve) => setTimeout(resolve, pause));
    last = Date.now();
    again = false;
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" }, redirect: "error" });
      if (answer.ok) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        for (const region of document.querySelectorAll("[data-region][id]")) {
          const next = page.getElementById(region.id);
          if (next) patch(region, next);
        }
        const still = page.body.dataset.live || "";
        if (still !== topics) follow(still);
        document.dispatchEvent(new Event("sluice:patched"));
      }
    } catch { /* the next notice tries again */ }
    running = false;
    if (again) refresh();
  };

  let source = null;
  let current = topics;
  const open = () => {
    if (source || !current) return;
    source = new EventSource(`/api/v1/events?topics=${encodeURIComponent(current)}`);
    let opened = false;
    source.addEventListener("open", () => {
      say("live", "live");
      // what changed while the stream was away is not told
      if (opened || stale) refresh();
      opened = true;
      stale = false;
    });
    source.addEventListener("change", (event) => {
      document.dispatchEvent(new CustomEvent("sluice:change", { detail: event.data }));
      refresh();
    });
    source.addEventListener("error", () => say("waiting", "reconnecting"));
  };
  let stale = false;
  const close = () => {
    if (source) source.close();
    source = null;
  };
  const follow = (next) => {
    current = next;
    close();
    if (current) { stale = true; open(); } else say("paused", "finished");
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { close(); say("paused", "paused"); } else if (current) { stale = true; open(); }
  });
  open();
})();
