// Charts out of the table below them: the table is what a page without scripts shows.
(() => {
  const doc = document;
  const style = (name) => getComputedStyle(doc.documentElement).getPropertyValue(name).trim();
  const place = doc.querySelector("[data-charts]");
  if (!place) return;
  // Columns of a point: when, new, ready, in flight, delayed, oldest, and what happened a minute.
  const lines = [
    ["Messages by state", [2, 3, 4, 1]],
    ["Messages per minute", [6, 7, 8, 9, 10]],
    ["Age of the oldest message", [5]],
  ];
  const names = [...doc.querySelectorAll("#figures thead th")].map((one) => one.textContent);
  const { step, recent } = place.dataset;
  let { from, to } = place.dataset;
  from = +from;
  to = +to;
  const length = to - from;
  const fine = JSON.parse(recent || "[]");
  const points = [...doc.querySelectorAll("#figures tbody tr")].map((row) => {
    const [at, ...values] = row.cells;
    const numbers = values.map(({ dataset: { v } }, n) => v === "" ? null : n > 4 ? v * 60 / step : +v);
    return [+at.firstElementChild.dataset.at, ...numbers];
  // A minute is told by its points where somebody looked.
  }).filter(([at]) => !fine.some((one) => one[0] >= at && one[0] < at + 60)).concat(fine);
  points.sort((a, b) => a[0] - b[0]);
  const data = (columns) => [0, ...columns].map((n) => points.map((one) => one[n] ?? null));
  // As everywhere: the year first, and 24 hours.
  const clock = (at, begin) => new Date((at - new Date(at * 1e3).getTimezoneOffset() * 60) * 1e3).toISOString().slice(begin, 16).replace("T", " ");
  const age = (seconds) => {
    if (seconds == null) return "–";
    const [size, unit] = seconds < 60 ? [1, " s"] : seconds < 3600 ? [60, " min"] : [3600, " h"];
    return +(seconds / size).toFixed(1) + unit;
  };
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
      const ages = columns[0] === 5;
      return new uPlot({
        title, width: box.clientWidth || 380, height: 190, cursor: { y: false },
        series: [{ value: (_, at) => at ? clock(at, 0) : "" }, ...columns.map((column, n) => ({ label: names[column], stroke: shades[n], width: 1.5, points: { show: points.length < 3 }, ...ages && { value: (_, shown) => age(shown) } }))],
        axes: [{ ...axis, space: to - from > 86400 ? 100 : 70, values: (_, ticks) => ticks.map((at) => clock(at, to - from > 86400 ? 5 : 11)) }, { ...axis, size: 60, ...ages && { incrs: [1, 5, 15, 60, 300, 900, 3600, 10800, 43200, 86400, 604800] }, values: (_, ticks) => ticks.map((tick) => ages ? age(tick) : tick.toLocaleString()) }],
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
    [from, to] = [now - length, now];
    while (points[0][0] < from) points.shift();
    plots.forEach((plot, at) => plot.setData(data(lines[at][1])));
  }, 2000);
})();
