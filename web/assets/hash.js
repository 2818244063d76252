// Links that the MLflow client prints (/#/experiments/1/runs/…) lead to the pages here.
(() => {
  "use strict";
  const target = (hash) => {
    const [path] = hash.replace(/^#\/?/, "").split("?");
    const parts = path.split("/").filter(Boolean).map((part) => {
      try { return encodeURIComponent(decodeURIComponent(part)); } catch { return encodeURIComponent(part); }
    });
    const [kind, id, sub, subId] = parts;
    if (kind === "experiments" && id && sub === "runs" && subId) return `/runs/${subId}`;
    if (kind === "experiments" && id) return `/experiments/${id}`;
    if (kind === "models" && id && sub === "versions" && subId) return `/models/${id}/versions/${subId}`;
    if (kind === "models" && id) return `/models/${id}`;
    if (kind === "models") return "/models";
    if (kind === "runs" && id) return `/runs/${id}`;
    return "/experiments";
  };
  location.replace(target(location.hash));
})();
