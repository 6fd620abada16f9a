"use strict";
// The page of a report: reads the data and builds all sections.

const report = JSON.parse(document.getElementById("data").textContent);
const page = document.getElementById("page");
const state = {time: false, smoothing: 0};
const charts = [];
const ORDER = ["loss", "accuracy", "lr", "grad_norm", "samples_per_s", "mfu", "mbu"];
const NAMES = {lr: "learning rate", grad_norm: "gradient norm", samples_per_s: "samples per second",
  mfu: "share of the peak of arithmetic (MFU)", mbu: "share of the peak of memory (MBU)"};
const KINDS = ["train", "val", "test"];

function toNumber(value) { // what is not finite is a string
  return typeof value === "string" ? Number(value) : value;
}

function prepare(run, i, runs) {
  run.color = "c" + i % 8;
  const isRepeated = runs.filter(r => r.name === run.name).length > 1;
  run.label = isRepeated ? run.folder : run.name;
  for (const curve of run.curves)
    curve.points = curve.steps.map((step, p) => ({x: step, step, y: toNumber(curve.values[p]),
      wall: curve.wall_s[p]}));
  run.shown = run.curves.filter(c => c.key !== "epoch" && c.key !== "samples");
}

function wallAt(run, step) {
  let wall = 0;
  const curve = figureOf(run, "train/loss") || run.curves[0];
  if (curve) for (const p of curve.points) if (p.step <= step) wall = p.wall;
  return wall;
}

function marksOf(run) {
  return {
    resumes: run.resumes.map(r => ({x: r.step, wall: r.wall_s,
      text: `resumed after step ${number(r.step)}`})),
    checkpoints: run.checkpoints.map(c => ({x: c.step, wall: wallAt(run, c.step), isBest: c.best,
      text: c.name + (c.best ? ", best" : "") + (c.last ? ", last" : "")}))};
}

function eventOf(run, kind) {
  return run.events.filter(e => e.kind === kind).pop();
}

function inOrder(keys) {
  const rank = key => ORDER.includes(key) ? ORDER.indexOf(key) : key in NAMES ? 90 : 1.5;
  return Array.from(new Set(keys)).sort((a, b) => rank(a) - rank(b));
}

function drawHead(run) {
  const head = element("div", "head", page);
  element("h1", "", head, run.name);
  element("span", "pill " + run.status, head, run.status);
  const start = run.events.find(e => e.kind === "start") || {}, facts = [run.folder];
  if (start.ranks) facts.push(`${start.ranks} ${start.ranks === 1 ? "rank" : "ranks"}`);
  if (start.device) facts.push(start.device);
  if (start.time) facts.push("started " + start.time.replace("T", " ").replace("Z", " UTC"));
  element("p", "sub", page, facts.join(" · "));
  if (run.reason)
    element("div", run.status === "failed" ? "note failed" : "note", page, run.reason);
}

function tile(parent, title, value, below) {
  const card = element("div", "card tile", parent);
  element("span", "", card, title);
  element("b", "", card, value);
  element("span", "", card, below || "\u00a0");
}

function drawTiles(run) {
  const tiles = element("div", "tiles", page);
  const start = eventOf(run, "start");
  const total = start && start.total_steps > 0 ? start.total_steps : 0;
  tile(tiles, "steps", number(run.step), total ? "of " + number(total) : "");
  tile(tiles, "time of training", duration(run.wall_s),
    run.resumes.length ? `in ${run.resumes.length + 1} parts` : "");
  for (const curve of run.shown) {
    if (curve.kind === "train" && curve.key !== "loss" && curve.key !== "samples_per_s") continue;
    const {best, last} = curve;
    const isBetter = best && last && best.step !== last.step;
    const at = p => `at step ${number(p.step)}`;
    if (curve.kind === "train" || !best)
      tile(tiles, curve.name, last ? number(last.value) : "–", isBetter ?
        `best ${number(best.value)} ${at(best)}` : "last");
    else
      tile(tiles, `${curve.name}${isBetter ? ", best" : ""}`, number(best.value), isBetter ?
        `${at(best)}, last ${number(last.value)}` : at(last));
  }
  if (total && run.status !== "completed") {
    const bar = svg("svg", {viewBox: "0 0 100 6", preserveAspectRatio: "none"},
      element("div", "bar", page));
    svg("rect", {width: Math.min(100, 100 * run.step / total), height: 6}, bar);
  }
}

function drawTools(parent) {
  const tools = element("div", "tools", parent);
  const axis = element("button", "", tools, "by time");
  axis.setAttribute("aria-pressed", "false");
  axis.addEventListener("click", () => {
    state.time = !state.time;
    axis.setAttribute("aria-pressed", String(state.time));
    charts.forEach(c => c.draw());
  });
  const label = element("label", "", tools, "smoothing");
  const range = element("input", "", label);
  Object.assign(range, {type: "range", min: 0, max: 0.98, step: 0.02, value: 0});
  range.addEventListener("input", () => {
    state.smoothing = Number(range.value);
    charts.forEach(c => c.draw());
  });
  element("span", "", tools, "dashed: a resume · triangle: a checkpoint");
}

function drawCurves(runs) {
  element("h2", "", page, "Curves");
  drawTools(page);
  const grid = element("div", "grid", page);
  if (runs.length === 1) {
    const run = runs[0], rest = key => run.shown.map(c => c.kind).filter(k => !KINDS.includes(k));
    for (const key of inOrder(run.shown.map(c => c.key))) {
      const kinds = KINDS.concat(rest(key)), series = run.shown.filter(c => c.key === key)
        .map(c => ({name: c.name, points: c.points, color: "c" + kinds.indexOf(c.kind) % 8}));
      charts.push(new Chart(grid, NAMES[key] || key, series, marksOf(run), state));
    }
    return;
  }
  for (const key of inOrder(runs.flatMap(r => r.shown.map(c => c.key))))
    for (const kind of new Set(runs.flatMap(r => r.shown.map(c => c.kind)))) {
      const name = kind + "/" + key;
      const series = runs.map(run => [run, figureOf(run, name)]).filter(pair => pair[1])
        .map(([run, c]) => ({name: `${run.label} ${name}`, label: run.label, points: c.points,
          color: run.color, dash: colorIsUsed(run, runs) ? "5 3" : null}));
      const marks = {resumes: [], checkpoints: []};
      if (series.length) charts.push(new Chart(grid, name, series, marks, state));
    }
}

function colorIsUsed(run, runs) {
  return runs.indexOf(run) >= 8;
}

function drawFigures(run) {
  element("h2", "", page, "Figures");
  table(page, ["figure", "last", "at step", "best", "at step", "values"], run.shown.map(c => [
    c.name, numberCell(c.last && c.last.value), numberCell(c.last && c.last.step),
    numberCell(c.best && c.best.value, c.best ? "best" : ""), numberCell(c.best && c.best.step),
    numberCell(c.steps.length)]));
}

function drawModel(run) {
  const start = run.events.filter(e => e.kind === "start" && e.model).pop();
  if (!start) return;
  element("h2", "", page, "Model");
  const parameters = start.model.reduce((sum, b) => sum + b.parameters, 0);
  const frozen = start.model.reduce((sum, b) => sum + (b.frozen || 0), 0);
  const rows = start.model.map(b => [b.block, b.output || "", numberCell(b.parameters),
    frozen ? numberCell(b.frozen || 0) : null].slice(0, frozen ? 4 : 3));
  rows.push([`total of ${start.model.length} blocks`, "", numberCell(parameters, "best"),
    numberCell(frozen)].slice(0, frozen ? 4 : 3));
  table(page, ["block", "output", "parameters", "frozen"].slice(0, frozen ? 4 : 3), rows);
}

function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  for (; value >= 1000 && unit < units.length - 1; unit++) value /= 1000;
  return parseFloat(value.toPrecision(3)) + " " + units[unit];
}

function drawMemory(run) {
  const start = run.events.filter(e => e.kind === "start" && e.memory).pop();
  if (!start) return;
  element("h2", "", page, "Memory of a rank, by the plan");
  const peak = start.memory.peak || 1;
  table(page, ["of", "bytes", ""], Object.keys(start.memory).map(key => {
    const share = svg("svg", {viewBox: "0 0 100 6", preserveAspectRatio: "none"});
    svg("rect", {width: Math.min(100, 100 * start.memory[key] / peak), height: 6}, share);
    const bar = element("div", "bar");
    bar.style.margin = "7px 0 0";
    bar.appendChild(share);
    return [key, {text: bytes(start.memory[key]), isNumber: true}, {text: "", node: bar}];
  }));
}

function drawTimes(run) {
  const end = eventOf(run, "end");
  if (!end || !end.actions || !end.actions.length) return;
  element("h2", "", page, "Time by action");
  const ranks = Array.from(new Set(end.actions.map(a => a.rank)));
  const all = end.actions.reduce((sum, a) => sum + a.seconds, 0);
  const kinds = Array.from(new Set(end.actions.map(a => a.action)));
  table(page, ["action", "count", "share"].concat(ranks.map(r => `rank ${r}`)), kinds.map(kind => {
    const found = end.actions.filter(a => a.action === kind);
    const sum = found.reduce((s, a) => s + a.seconds, 0);
    return [kind, numberCell(found.reduce((s, a) => s + a.count, 0)),
      {text: (100 * sum / all).toFixed(1) + "%", isNumber: true}].concat(ranks.map(r => {
      const one = found.find(a => a.rank === r);
      return {text: one ? duration(one.seconds) : "–", isNumber: true};
    }));
  }));
}

function drawEvents(run) {
  const rows = [];
  for (const e of run.events) {
    if (e.kind === "change")
      rows.push([numberCell(e.step), `${e.key}: ${setting(e.from)} → ${setting(e.to)}`]);
    if (e.kind === "message") rows.push([numberCell(e.step), e.text]);
    if (e.kind === "start" && e.step > 0)
      rows.push([numberCell(e.step), "resumed" + (e.time ? " " + e.time : "")]);
    if (e.kind === "end")
      rows.push([numberCell(e.steps), e.status + (e.reason ? ": " + e.reason : "")]);
  }
  if (run.damaged_lines)
    rows.push([numberCell(null), `${run.damaged_lines} lines of metrics.jsonl could not be read, ` +
      `the first is line ${run.first_damaged_line}`]);
  if (!rows.length) return;
  element("h2", "", page, "What happened");
  table(page, ["step", "event"], rows).classList.add("tight");
}

function drawRecipe(run) {
  element("h2", "", page, "Recipe");
  if (run.no_recipe) element("div", "note", page, run.no_recipe);
  if (run.has_defaults)
    table(page, ["differs from the default", "value", "default"], run.changed.map(c =>
      [c.key, setting(c.values[0]), setting(c.values[1])]));
  if (!run.recipe_yaml) return;
  const card = element("div", "card", page);
  card.style.marginTop = "12px";
  const details = element("details", "", card);
  element("summary", "", details, "the whole recipe");
  element("pre", "", details, run.recipe_yaml);
}

// The figure by which runs are compared: of the last evaluation, or of training.
function mainFigure(runs) {
  const names = runs.flatMap(r => r.shown.filter(c => c.best).map(c => c.name));
  const wanted = ["test/accuracy", "val/accuracy", "test/loss", "val/loss", "train/loss"];
  return wanted.find(name => names.includes(name)) || names[0];
}

function drawOverview(runs) {
  element("h2", "", page, "Runs");
  const names = Array.from(new Set(runs.flatMap(r => r.shown.filter(c => c.best &&
    (c.kind !== "train" || c.key === "loss" || c.key === "samples_per_s")).map(c => c.name))));
  const better = {};
  for (const name of names) {
    const found = runs.map(r => figureOf(r, name)).filter(c => c && c.best);
    const isRising = found.some(c => c.points.some(p => p.y < c.best.value));
    const isFalling = found.some(c => c.points.some(p => p.y > c.best.value));
    const values = found.map(c => c.best.value);
    better[name] = isRising === isFalling ? NaN : isRising ? Math.max(...values) :
      Math.min(...values);
  }
  table(page, ["run", "status", "steps", "time"].concat(names.map(n => "best " + n)),
    runs.map(run => {
      const label = element("span", "legend");
      const name = element("span", run.color, label);
      element("i", "", name);
      element("span", "", name, run.label).style.color = "var(--text)";
      label.style.marginTop = "0";
      return [{node: label, text: ""}, {text: run.status, className: run.status},
        numberCell(run.step), {text: duration(run.wall_s), isNumber: true}]
        .concat(names.map(n => {
          const c = figureOf(run, n), value = c && c.best ? c.best.value : null;
          return numberCell(value, value === better[n] ? "best" : "");
        }));
    }));
}

function drawDifferences(runs) {
  element("h2", "", page, "What the recipes differ in");
  if (!report.differences.length) {
    element("p", "sub", page, "nothing");
    return;
  }
  const figure = mainFigure(runs);
  if (figure) drawParallel(page, runs, report.differences, figure);
  element("p", "sub", page, "");
  table(page, ["setting"].concat(runs.map(r => r.label)),
    report.differences.map(d => [d.key].concat(d.values.map(setting))));
}

function draw(runs) {
  runs.forEach(prepare);
  if (runs.length === 1) {
    const run = runs[0];
    drawHead(run);
    drawTiles(run);
    if (run.shown.length) drawCurves(runs);
    else element("div", "note", page, "no line of figures was written yet");
    if (run.lists.length) {
      element("h2", "", page, "Classes");
      drawLists(element("div", "grid", page), run);
    }
    drawFigures(run);
    drawModel(run);
    drawMemory(run);
    drawTimes(run);
    drawEvents(run);
    drawRecipe(run);
  } else {
    element("h1", "", element("div", "head", page), `${runs.length} runs`);
    drawOverview(runs);
    drawCurves(runs);
    drawDifferences(runs);
  }
  element("footer", "", page, `Made by trireme ${report.trireme} on ` +
    report.made.replace("T", " ").replace("Z", " UTC") + ", from metrics.jsonl.");
}

draw(report.runs);
let width = page.clientWidth;
window.addEventListener("resize", () => {
  if (page.clientWidth === width) return;
  width = page.clientWidth;
  charts.forEach(c => c.draw());
});
