"use strict";
// Charts and printing. Pages show the same numbers without it.

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function draw(figure) {
  const data = JSON.parse(figure.dataset.series);
  const place = figure.querySelector(".plot");
  const size = () => ({ width: place.clientWidth, height: place.clientWidth < 500 ? 200 : 260 });
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
  const line = (label, name) => ({ label, stroke: colour(name), width: 2, fill: colour(name) + "14", points: { show: false } });
  const two = number => String(number).padStart(2, "0");
  const moment = (seconds, step) => {
    const at = new Date(seconds * 1e3), day = `${two(at.getUTCMonth() + 1)}-${two(at.getUTCDate())}`;
    const midnight = at.getUTCHours() + at.getUTCMinutes() === 0;
    const minute = `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}`;
    if (step < 60) return `${minute}:${two(at.getUTCSeconds())}`;
    return step >= 86400 || midnight ? day : minute;
  };
  place.replaceChildren();
  const plot = new uPlot({
    ...size(),
    tzDate: seconds => uPlot.tzDate(new Date(seconds * 1e3), "Etc/UTC"),
    legend: { show: false },
    padding: [10, 30, 0, 0],
    cursor: { drag: { x: false, y: false }, points: { size: 7 } },
    scales: { y: { range: (_, low, high) => [0, Math.max(high, 1) * 1.08] } },
    series: [{}, line("decisions", "--shown"), line("rewarded", "--entitled")],
    axes: [{ ...axis, size: 32, grid: { show: false }, space: 72, values: (_, splits, __, ___, step) => splits.map(at => moment(at, step)) }, { ...axis, size: 56, values: (_, values) => values.map(value => Number.isInteger(value) ? value.toLocaleString("fr-FR") : "") }],
  }, [data.times, data.decisions, data.rewards], place);
  return () => plot.setSize(size());
}

for (const figure of document.querySelectorAll("figure[data-series]")) {
  let fit = draw(figure);
  addEventListener("resize", () => fit());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { fit = draw(figure); });
}

for (const button of document.querySelectorAll("button.print")) {
  button.hidden = false;
  button.addEventListener("click", () => print());
}
