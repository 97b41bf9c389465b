// Charts over time by uPlot, in the page's colours; what a chart shows is said in words and in a table as well.
import { h, table } from "./dom.js";

const live = new Set();

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// series: [{name, values, colour, bars, dash, points}], times in seconds (or indexes, with `index`), shown from..to
export function chart(title, note, times, series, { format, top, index = false, height = 190, from = null, to = null } = {}) {
  const place = h("div", { role: "img", "aria-label": `${title}: ${described(series, format)}` });
  const heads = [[index ? "request" : "time", ([at]) => label(at, index)],
    ...series.map((each, i) => [each.name, (row) => format(row[i + 1]), true])];
  const figure = h("figure", {},
    h("figcaption", {}, title, " ", h("small", {}, note)),
    place,
    h("details", {}, h("summary", {}, "As a table"),
      table(title, heads, times.map((at, i) => [at, ...series.map((each) => each.values[i])]))));
  const drawing = { place, times, series, format, top, index, height, from, to, plot: null };
  live.add(drawing);
  requestAnimationFrame(() => draw(drawing));
  return figure;
}

export function forget() {
  for (const drawing of live) drawing.plot?.destroy();
  live.clear();
}

function draw(drawing) {
  const { place, times, series, format, top, index, height, from, to } = drawing;
  drawing.plot?.destroy();
  drawing.plot = null;
  if (!place.isConnected || !times.length) return;
  const axis = { stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line") }, font: "12px system-ui" };
  const options = {
    width: Math.max(200, place.clientWidth),
    height,
    cursor: { drag: { x: false, y: false } },
    scales: {
      x: { time: !index, range: (_, low, high) => (from !== null ? [from, to] : low === high ? [low - 1, high + 1] : [low, high]) },
      y: { range: (_, low, high) => [0, Math.max(high ?? 0, top ?? 0) * 1.08 || 1] },
    },
    axes: [
      index ? { ...axis, incrs: WHOLE } : { ...axis, space: 70, values: (_, ticks, __, ___, step) => ticks.map((at) => tick(at, step)) },
      { ...axis, size: 70, values: (_, ticks) => ticks.map(format) },
    ],
    series: [
      { label: index ? "request" : "time", value: (_, at) => (at === null ? "–" : label(at, index)) },
      ...series.map((each) => ({
        label: each.name,
        stroke: colour(each.colour),
        width: 2,
        dash: each.dash,
        fill: each.bars ? colour(each.colour) : undefined,
        paths: each.bars ? uPlot.paths.bars({ size: [0.8, 40] }) : each.points ? () => null : undefined,
        points: { show: each.bars ? false : each.points ?? (!each.dash && each.values.filter((value) => value !== null).length < 40), size: each.points ? 9 : 5,
          fill: colour(each.colour) },
        spanGaps: true,
        value: (_, value) => format(value),
      })),
    ],
  };
  drawing.plot = new uPlot(options, [times, ...series.map((each) => each.values)], place);
}

const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500];

function tick(at, step) {
  const date = new Date(at * 1000);
  if (step >= 86400) return date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  return date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: step < 60 ? "2-digit" : undefined });
}

function label(at, index) {
  return index ? `${at}` : new Date(at * 1000).toLocaleTimeString("en-GB");
}

function described(series, format) {
  const parts = series.map((each) => {
    const values = each.values.filter((value) => value !== null && value !== undefined);
    if (!values.length) return `${each.name} without figures`;
    return `${each.name} last ${format(values.at(-1))}, at most ${format(values.reduce((a, b) => Math.max(a, b)))}`;
  });
  return parts.join("; ");
}

const redraw = () => live.forEach(draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
let waiting;
addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(redraw, 120);
});
