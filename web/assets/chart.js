// Curves of a run's metrics, drawn by uPlot from /api/v1/runs/{id}/series: the last value of each bucket as a line,
// least and greatest as a band behind it, so that no spike is hidden.
(() => {
  "use strict";
  // light-dark() is resolved by the browser only where it is used: a custom property keeps it as text
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  const colour = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const withAlpha = (rgb, alpha) => `rgba(${rgb.match(/[\d.]+/g).slice(0, 3).join(", ")}, ${alpha})`;

  const short = (value) => {
    if (value === null || value === undefined) return "–";
    if (!Number.isFinite(value)) return String(value);
    const size = Math.abs(value);
    if (value === 0 || (Number.isInteger(value) && size < 1e7)) return String(value);
    if (size < 1e-4 || size >= 1e6) return value.toExponential(3).replace(/\.?0+e/, "e");
    return Number(value.toPrecision(4)).toString();
  };

  class Chart {
    constructor(figure) {
      this.figure = figure;
      this.plot = figure.querySelector(".plot");
      this.key = figure.dataset.key;
      this.run = figure.dataset.run;
      this.log = false;
      this.axis = "step";
      this.chart = null;
      this.tools();
    }

    tools() {
      const bar = document.createElement("div");
      bar.className = "chart-tools";
      const button = (label, title, act) => {
        const one = document.createElement("button");
        one.type = "button";
        one.textContent = label;
        one.title = title;
        one.setAttribute("aria-pressed", "false");
        one.addEventListener("click", () => one.setAttribute("aria-pressed", String(act())));
        bar.append(one);
      };
      button("log y", "Logarithmic value axis", () => { this.log = !this.log; this.draw(); return this.log; });
      button("time", "Time instead of steps", () => {
        this.axis = this.axis === "step" ? "time" : "step";
        this.load();
        return this.axis === "time";
      });
      button("data", "The drawn points as a table", () => this.toggleTable());
      this.readout = document.createElement("span");
      this.readout.className = "chart-readout";
      bar.append(this.readout);
      this.figure.append(bar);
    }

    async load() {
      const px = Math.max(100, Math.min(2000, Math.round(this.plot.clientWidth * devicePixelRatio)));
      const query = new URLSearchParams({ key: this.key, px });
      if (this.axis !== "step") query.set("x", this.axis);
      try {
        const answer = await fetch(`/api/v1/runs/${this.run}/series?${query}`);
        const body = await answer.json();
        if (!answer.ok) throw new Error(body.detail || answer.statusText);
        const series = body.series ?? body;
        this.data = Array.isArray(series) ? series.find((one) => one.key === this.key) : series[this.key];
        if (!this.data || !this.data.x.length) this.say("No points yet");
        else this.draw();
      } catch (error) {
        this.say(`The data could not be read: ${error.message}`);
      }
    }

    say(text) {
      if (this.chart) this.chart.destroy();
      this.chart = null;
      const note = document.createElement("p");
      note.className = "plot-note";
      note.textContent = text;
      this.plot.replaceChildren(note);
    }

    draw() {
      const { x, min, max, last } = this.data;
      const seconds = this.axis === "time";
      const drawable = (values) => values.map((value) => (Number.isFinite(value) && (!this.log || value > 0) ? value : null));
      const columns = [seconds ? x.map((ms) => ms / 1000) : x, drawable(max), drawable(min), drawable(last)];
      const line = colour("--busy");
      const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1, size: 4 }, font: "11px system-ui, sans-serif" };
      const options = {
        width: this.plot.clientWidth,
        height: this.plot.clientHeight,
        padding: [8, 8, 0, 0],
        legend: { show: false },
        cursor: { points: { size: 6 }, drag: { x: true, y: false }, sync: { key: `run-${this.run}-${this.axis}` } },
        scales: { x: { time: seconds }, y: { distr: this.log ? 3 : 1 } },
        axes: [
          { ...axis, size: 26, space: 60 },
          { ...axis, size: 52, space: 34, values: (_, splits) => splits.map((value) => (value === null ? "" : short(value))) },
        ],
        series: [
          {},
          { label: "max", stroke: "transparent", points: { show: false } },
          { label: "min", stroke: "transparent", points: { show: false } },
          { label: this.key, stroke: line, width: 1.75, spanGaps: false, points: { show: x.length < 60, size: 4, fill: line } },
        ],
        bands: [{ series: [1, 2], fill: withAlpha(line, 0.28) }],
        hooks: { setCursor: [(plot) => this.point(plot.cursor.idx)] },
      };
      if (this.chart) this.chart.destroy();
      this.plot.replaceChildren();
      this.chart = new uPlot(options, columns, this.plot);
      this.point(null);
      if (this.table) this.fillTable();
    }

    point(index) {
      if (index === null || index === undefined) {
        const hidden = this.data.last.filter((value) => !Number.isFinite(value) || (this.log && value <= 0)).length;
        const notes = [];
        if (this.data.bucketed) notes.push(`${this.data.total_points} points, ${this.data.x.length} drawn`);
        if (hidden) notes.push(`${hidden} not drawn (${this.log ? "≤ 0 or " : ""}not finite)`);
        this.readout.textContent = notes.join(" · ");
        return;
      }
      const at = this.axis === "time" ? new Date(this.data.x[index]).toLocaleTimeString() : `step ${short(this.data.x[index])}`;
      const { min, max, last } = this.data;
      const band = min[index] !== max[index] ? ` (${short(min[index])} … ${short(max[index])})` : "";
      this.readout.textContent = `${at}: ${short(last[index])}${band}`;
    }

    toggleTable() {
      if (this.table) {
        this.table.remove();
        this.table = null;
        return false;
      }
      this.table = document.createElement("div");
      this.table.className = "scroll";
      this.table.tabIndex = 0;
      this.figure.append(this.table);
      this.fillTable();
      return true;
    }

    fillTable() {
      const table = document.createElement("table");
      const caption = table.createCaption();
      caption.className = "hidden";
      caption.textContent = `Drawn points of ${this.key}`;
      const head = table.createTHead().insertRow();
      for (const name of [this.axis === "time" ? "time" : "step", "last", "min", "max"]) {
        const cell = document.createElement("th");
        cell.scope = "col";
        cell.textContent = name;
        head.append(cell);
      }
      const body = table.createTBody();
      if (this.data) {
        this.data.x.forEach((x, index) => {
          const row = body.insertRow();
          row.insertCell().textContent = this.axis === "time" ? new Date(x).toLocaleString() : String(x);
          for (const values of [this.data.last, this.data.min, this.data.max]) row.insertCell().textContent = short(values[index]);
        });
      }
      this.table.replaceChildren(table);
    }

    resize() {
      if (this.chart && this.plot.clientWidth) this.chart.setSize({ width: this.plot.clientWidth, height: this.plot.clientHeight });
    }
  }

  const charts = new Map();
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      seen.unobserve(entry.target);
      const chart = new Chart(entry.target);
      charts.set(entry.target, chart);
      chart.load();
    }
  }, { rootMargin: "200px" });
  const scan = () => document.querySelectorAll("[data-chart]").forEach((figure) => { if (!charts.has(figure)) seen.observe(figure); });
  scan();

  new ResizeObserver(() => charts.forEach((chart) => chart.resize())).observe(document.querySelector("main"));
  const redraw = () => charts.forEach((chart) => { if (chart.data && chart.data.x.length) chart.draw(); });
  document.addEventListener("sluice:theme", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  // live: at most one reload per second, and only of charts that were drawn
  let due = null;
  document.addEventListener("sluice:change", (event) => {
    if (!event.detail.startsWith("run:") || due) return;
    due = setTimeout(() => {
      due = null;
      charts.forEach((chart) => chart.load());
    }, 1000);
  });
  document.addEventListener("sluice:patched", scan);
})();
