// Runs before the first paint, so that the chosen theme never flashes. Also keeps relative times fresh.
(() => {
  "use strict";
  const root = document.documentElement;
  const names = ["system", "light", "dark"];
  const stored = () => {
    try { return localStorage.getItem("sluice.theme") || "system"; } catch { return "system"; }
  };
  const apply = (name) => {
    if (name === "system") delete root.dataset.theme; else root.dataset.theme = name;
    const button = document.getElementById("theme");
    if (button) {
      button.hidden = false;
      button.querySelector("span").textContent = `Theme: ${name}`;
    }
  };
  apply(stored());

  const ago = (at, now) => {
    const secs = Math.floor((now - at) / 1000);
    if (secs < -59) return null;
    if (secs < 5) return "just now";
    if (secs < 60) return `${secs} s ago`;
    if (secs < 3600) return `${Math.floor(secs / 60)} min ago`;
    if (secs < 86400) return `${Math.floor(secs / 3600)} h ago`;
    if (secs < 2592000) return `${Math.floor(secs / 86400)} d ago`;
    return null;
  };
  const refreshTimes = (within) => {
    for (const time of within.querySelectorAll("time[data-ago]")) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      const text = ago(at, Date.now());
      if (text !== null && time.textContent !== text) time.textContent = text;
      time.title = at.toLocaleString();
    }
  };
  document.addEventListener("sluice:patched", () => refreshTimes(document));
  document.addEventListener("DOMContentLoaded", () => {
    apply(stored());
    document.getElementById("theme").addEventListener("click", () => {
      const next = names[(names.indexOf(stored()) + 1) % names.length];
      try { localStorage.setItem("sluice.theme", next); } catch { /* the choice lasts for this page */ }
      apply(next);
      document.dispatchEvent(new Event("sluice:theme"));
    });
    refreshTimes(document);
    setInterval(() => { if (!document.hidden) refreshTimes(document); }, 10000);
  });
})();
