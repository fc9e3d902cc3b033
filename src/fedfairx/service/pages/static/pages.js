"use strict";
// Charts and printing. Pages show the same numbers without it.

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Seconds between labels of time. uPlot's own steps go from one minute to five: too far for narrow charts.
const DAY = 86400;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600, 28800, 43200,
  ...[1, 2, 3, 5, 7, 10, 15, 30, 60, 90, 180, 365, 730, 1825].map(days => days * DAY)];

// Lines over time. If the last stretch is not over, the way to it is dashed, and its end a hollow point.
function draw(figure, shares) {
  const data = JSON.parse(shares ? figure.dataset.shares : figure.dataset.series);
  const lines = shares ? [["shown", data.shown, "--shown"], ["entitled", data.entitled, "--entitled"]]
    : [["decisions", data.decisions, "--shown"], ["rewarded", data.rewards, "--entitled"]];
  const place = figure.querySelector(".plot");
  const size = () => ({ width: place.clientWidth, height: place.clientWidth < 500 ? 200 : 260 });
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
  const last = data.open ? data.times.length - 1 : data.times.length;
  const over = values => values.map((value, k) => k < last ? value : null);
  const open = values => values.map((value, k) => k < last - 1 ? null : value);
  const line = (label, name) => ({ label, stroke: colour(name), width: 2, fill: shares ? undefined : colour(name) + "14", points: { show: shares && last < 40 }, spanGaps: false });
  const dashed = (label, name) => ({ ...line(label, name), fill: undefined, dash: [5, 5], points: { show: true, filter: () => [last], size: 8, width: 2, stroke: colour(name), fill: colour("--paper") } });
  const two = number => String(number).padStart(2, "0");
  const moment = (seconds, step) => {
    const at = new Date(seconds * 1e3), day = `${two(at.getUTCMonth() + 1)}-${two(at.getUTCDate())}`;
    const midnight = at.getUTCHours() + at.getUTCMinutes() === 0;
    const minute = `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}`;
    if (step < 60) return `${minute}:${two(at.getUTCSeconds())}`;
    return step >= 86400 || midnight ? day : minute;
  };
  // As many decimals as the distance between labels has, so that no two labels are the same.
  const decimals = step => [0, 1, 2].find(digits => Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) < 1e-6) ?? 3;
  const written = (value, step) => shares ? `${(100 * value).toFixed(decimals(100 * step))} %` : Number.isInteger(value) ? value.toLocaleString("fr-FR") : "";
  place.replaceChildren();
  const plot = new uPlot({
    ...size(),
    tzDate: seconds => uPlot.tzDate(new Date(seconds * 1e3), "Etc/UTC"),
    legend: { show: false },
    padding: [10, 30, 0, 0],
    cursor: { drag: { x: false, y: false }, points: { size: 7 } },
    scales: { y: { range: (_, low, high) => [0, shares ? Math.min(1, Math.max(high, 0.02) * 1.15) : Math.max(high, 1) * 1.08] } },
    series: [{}, ...lines.flatMap(([label, , name]) => [line(label, name), dashed(label, name)])],
    axes: [{ ...axis, size: 36, gap: 10, grid: { show: false }, space: 72, incrs: STEPS, values: (_, splits, __, ___, step) => splits.map(at => moment(at, step)) }, { ...axis, size: 56, values: (_, splits, __, ___, step) => splits.map(value => written(value, step)) }],
  }, [data.times, ...lines.flatMap(([, values]) => [over(values), open(values)])], place);
  return () => plot.setSize(size());
}

for (const figure of document.querySelectorAll("figure[data-series], figure[data-shares]")) {
  const again = () => draw(figure, "shares" in figure.dataset);
  let fit = again();
  addEventListener("resize", () => fit());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { fit = again(); });
}

// What is still being computed is asked for again, unless somebody is about to write or to choose.
function reload() {
  if (document.activeElement.matches("input, select")) setTimeout(reload, 5e3);
  else location.reload();
}
if (document.querySelector(".going-on")) setTimeout(reload, 5e3);

// On a narrow screen the page that is shown may be beyond the end of the navigation.
document.querySelector(".top nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });

for (const button of document.querySelectorAll("button.print")) {
  button.hidden = false;
  button.addEventListener("click", () => print());
}
