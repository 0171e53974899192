// Charts out of the table below them: the table is what a page without scripts shows.
(() => {
  "use strict";
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const lines = [
    { title: "Messages by state", names: ["ready", "in flight", "delayed", "new"] },
    { title: "A minute", names: ["sent", "received", "deleted", "redelivered", "buried"], perMinute: true },
    { title: "Oldest, seconds", names: ["oldest"] },
  ];
  const shades = () => style("color-scheme") === "dark"
    ? ["#4cb4ff", "#ffb454", "#9aa4b2", "#7fd88f", "#ff9a8f"]
    : ["#0172ad", "#b35c00", "#646b79", "#1f7a3a", "#b3261e"];
  const draw = (place) => {
    const table = document.getElementById(place.dataset.charts);
    const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    const rows = [...table.tBodies[0].rows];
    const column = (number) => rows.map((row) => {
      const value = row.cells[number].dataset.v;
      return value === "" ? null : Number(value);
    });
    const times = rows.map((row) => Number(row.cells[0].firstElementChild.dataset.at));
    const minutes = Number(place.dataset.step) / 60;
    // All places first: each one's width is known only beside the others.
    place.replaceChildren(...lines.map(() => document.createElement("figure")));
    const colours = shades();
    const [text, grid] = [style("--pico-muted-color"), style("--pico-muted-border-color")];
    const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
    lines.forEach(({ title, names, perMinute }, at) => {
      const box = place.children[at];
      const values = names.map((name) => {
        const found = column(heads.indexOf(name));
        return perMinute ? found.map((value) => (value === null ? null : value / minutes)) : found;
      });
      new uPlot({
        title, width: box.clientWidth || 380, height: 190, cursor: { y: false },
        series: [{}, ...names.map((label, n) => ({ label, stroke: colours[n], width: 1.5, points: { show: times.length < 3 } }))],
        axes: [{ ...axis, space: 70 }, { ...axis, size: 60, values: (_, ticks) => ticks.map((tick) => tick.toLocaleString()) }],
        // The whole length that was chosen, however little of it is noted.
        scales: { x: { range: [place.dataset.from, place.dataset.to].map(Number) }, y: { range: (_, low, high) => [0, Math.max(1, high)] } },
      }, [times, ...values], box);
    });
  };
  const drawAll = () => document.querySelectorAll("[data-charts]").forEach(draw);
  addEventListener("DOMContentLoaded", drawAll);
  document.getElementById("theme")?.addEventListener("click", () => setTimeout(drawAll));
  let soon;
  addEventListener("resize", () => { clearTimeout(soon); soon = setTimeout(drawAll, 150); });
})();
