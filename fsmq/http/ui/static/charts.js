// Charts out of the table below them: the table is what a page without scripts shows.
(() => {
  const doc = document;
  const style = (name) => getComputedStyle(doc.documentElement).getPropertyValue(name).trim();
  const place = doc.querySelector("[data-charts]");
  if (!place) return;
  // Columns of a point: when, new, ready, in flight, delayed, oldest, and what happened a minute.
  const lines = [
    ["Messages by state", { ready: 2, "in flight": 3, delayed: 4, new: 1 }],
    ["A minute", { sent: 6, received: 7, deleted: 8, redelivered: 9, buried: 10 }],
    ["Oldest, seconds", { oldest: 5 }],
  ];
  const { step, recent } = place.dataset;
  let { from, to } = place.dataset;
  from = +from;
  to = +to;
  const fine = JSON.parse(recent || "[]");
  const points = [...doc.querySelectorAll("#figures tbody tr")].map((row) => {
    const [at, ...values] = row.cells;
    const numbers = values.map(({ dataset: { v } }, n) => v === "" ? null : n > 4 ? v * 60 / step : +v);
    return [+at.firstElementChild.dataset.at, ...numbers];
  // A minute is told by its points where somebody looked.
  }).filter(([at]) => !fine.some((one) => one[0] >= at && one[0] < at + 60)).concat(fine);
  points.sort((a, b) => a[0] - b[0]);
  const data = (columns) => [0, ...Object.values(columns)].map((n) => points.map((one) => one[n] ?? null));
  let plots = [];
  const draw = () => {
    // All places first: each one's width is known only beside the others.
    place.replaceChildren(...lines.map(() => doc.createElement("figure")));
    const shades = style("color-scheme") === "dark"
      ? ["#4cb4ff", "#ffb454", "#9aa4b2", "#7fd88f", "#ff9a8f"]
      : ["#0172ad", "#b35c00", "#646b79", "#1f7a3a", "#b3261e"];
    const [stroke, line] = [style("--pico-muted-color"), style("--pico-muted-border-color")];
    const grid = { stroke: line, width: 1 };
    const axis = { stroke, grid, ticks: grid };
    plots = lines.map(([title, columns], at) => {
      const box = place.children[at];
      return new uPlot({
        title, width: box.clientWidth || 380, height: 190, cursor: { y: false },
        series: [{}, ...Object.keys(columns).map((label, n) => ({ label, stroke: shades[n], width: 1.5, points: { show: points.length < 3 } }))],
        axes: [{ ...axis, space: 70 }, { ...axis, size: 60, values: (_, ticks) => ticks.map((tick) => tick.toLocaleString()) }],
        // The whole length that was chosen, however little of it is noted.
        scales: { x: { range: () => [from, to] }, y: { range: (_, low, high) => [0, Math.max(1, high)] } },
      }, data(columns), box);
    });
  };
  addEventListener("DOMContentLoaded", draw);
  doc.getElementById("theme").addEventListener("click", () => setTimeout(draw));
  let soon;
  addEventListener("resize", () => { clearTimeout(soon); soon = setTimeout(draw, 150); });
  // The last quarter of an hour goes on by itself, as long as the figures above are live.
  if (recent) setInterval(() => {
    if (!doc.querySelector("[data-state=live]")) return;
    const [fresh, ready, claimed, delayed, oldest, ...happened] = JSON.parse(doc.querySelector("[data-point]").dataset.point);
    const now = Date.now() / 1000;
    points.push([now, fresh, ready, claimed, delayed, oldest && Math.max(0, now - oldest), ...happened]);
    [from, to] = [now - 900, now];
    while (points[0][0] < from) points.shift();
    plots.forEach((plot, at) => plot.setData(data(lines[at][1])));
  }, 2000);
})();
