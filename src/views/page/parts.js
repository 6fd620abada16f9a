"use strict";
// Tables, parallel coordinates and matrices.

// rows: lists of cells, each a text or {text, className, isNumber}.
function table(parent, heads, rows) {
  const card = element("div", "card wide", parent);
  const root = element("table", "", card);
  const head = element("tr", "", element("thead", "", root));
  heads.forEach((text, i) => {
    const isNumber = rows.length > 0 && rows.every(r => r[i] && r[i].isNumber);
    element("th", isNumber ? "n" : "", head, text);
  });
  const body = element("tbody", "", root);
  for (const row of rows) {
    const line = element("tr", "", body);
    for (const cell of row) {
      const isPlain = typeof cell !== "object" || cell === null;
      const place = element("td", isPlain ? "" : [cell.className || "", cell.isNumber ? "n" : ""]
        .join(" ").trim(), line, isPlain ? String(cell) : cell.text);
      if (!isPlain && cell.node) place.appendChild(cell.node);
    }
  }
  return card;
}

function numberCell(value, className) {
  return {text: number(value), isNumber: true, className};
}

function setting(value) {
  if (value === null || value === undefined) return "–";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function matrixOf(parent, title, rows, names) {
  const card = element("figure", "card chart", parent);
  card.style.margin = "0";
  element("h3", "", card, title);
  const count = rows.length, width = Math.max(...rows.map(r => r.length));
  const size = Math.max(16, Math.min(44, Math.floor(400 / width))), left = names ? 90 : 30;
  const highest = Math.max(...rows.flat().filter(Number.isFinite).map(Math.abs), 1e-300);
  const root = svg("svg", {viewBox: `0 0 ${left + size * width} ${size * count + 20}`,
    class: "cell", role: "img", "aria-label": title}, card);
  rows.forEach((row, i) => {
    svg("text", {x: left / 2, y: i * size + size / 2 + 4}, root, names ? names[i] : i);
    row.forEach((value, j) => {
      const x = left + j * size, y = i * size;
      const isKnown = Number.isFinite(value);
      const cell = svg("rect", {x, y, width: size, height: size,
        "fill-opacity": isKnown ? 0.06 + 0.74 * Math.abs(value) / highest : 0}, root);
      svg("title", {}, cell, `${names ? names[i] : i}, ${names ? names[j] : j}: ${number(value)}`);
      if (size >= 26)
        svg("text", {x: x + size / 2, y: y + size / 2 + 4}, root, number(value));
    });
  });
  for (let j = 0; j < width; j++)
    svg("text", {x: left + j * size + size / 2, y: count * size + 14}, root,
      names && size >= 40 ? names[j].slice(0, 6) : j);
}

// The figures of the latest evaluation that are lists: matrices, and tables of one number a class.
function drawLists(parent, run) {
  const isMatrix = v => v.length > 0 && v.length <= 50 && v.every(Array.isArray);
  for (const line of run.lists) {
    const names = line.classes, at = ` at step ${number(line.step)}`;
    const keys = Object.keys(line).filter(key => key !== "classes" && Array.isArray(line[key]));
    const flat = keys.filter(key => line[key].length <= 1000 && !line[key].some(Array.isArray));
    for (const length of new Set(flat.map(key => line[key].length))) {
      const columns = flat.filter(key => line[key].length === length);
      const box = element("div", "", parent);
      element("h3", "", box, line.kind + at);
      table(box, ["class"].concat(columns.map(key => key.replace(/^class_/, ""))),
        line[columns[0]].map((_, i) => [names ? names[i] : i].concat(
          columns.map(key => numberCell(toNumber(line[key][i]))))));
    }
    for (const key of keys.filter(k => isMatrix(line[k])))
      matrixOf(parent, `${line.kind}/${key}${at}`, line[key],
        names && names.length === line[key].length ? names : null);
  }
}

// An axis of parallel coordinates: numbers lie by size, other values in order of appearance.
function axisOf(name, values) {
  const known = values.filter(v => v !== null && v !== undefined);
  const isNumeric = known.length > 0 && known.every(v => typeof v === "number" && isFinite(v));
  if (!isNumeric) {
    const words = Array.from(new Set(values.map(setting)));
    return {name, words, at: v => words.length > 1 ?
      words.indexOf(setting(v)) / (words.length - 1) : 0.5};
  }
  const low = Math.min(...known), high = Math.max(...known);
  const isLog = low > 0 && high / low > 50;
  const f = isLog ? Math.log10 : v => v;
  return {name, low, high, at: v => {
    if (typeof v !== "number" || !isFinite(v)) return null;
    return high > low ? (f(v) - f(low)) / (f(high) - f(low)) : 0.5;
  }};
}

function drawParallel(parent, runs, differences, figure) {
  const isWhole = d => d.values.every(v => v !== null);
  const whole = differences.filter(isWhole), chosen = whole.length ? whole : differences;
  const axes = chosen.slice(0, 9).map(d => ({...axisOf(d.key, d.values), values: d.values}));
  const results = runs.map(r => figureOf(r, figure)).map(c => {
    const point = c && (c.best || c.last);
    return point && typeof point.value === "number" ? point.value : null;
  });
  axes.push({...axisOf(figure, results), values: results});
  const card = element("div", "card wide", parent);
  const width = Math.max(680, axes.length * 150), height = 310, top = 50, bottom = 34, side = 80;
  const root = svg("svg", {viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": "parallel coordinates"}, card);
  root.style.minWidth = Math.min(width, 900) + "px";
  const x = i => side + i * (width - 2 * side) / Math.max(1, axes.length - 1);
  const y = part => height - bottom - part * (height - top - bottom);
  axes.forEach((axis, i) => {
    svg("line", {x1: x(i), x2: x(i), y1: top, y2: height - bottom, class: "gridline"}, root);
    const middle = {"text-anchor": "middle", class: "axis"};
    svg("text", {...middle, x: x(i), y: i % 2 ? 26 : 12}, root, axis.name); // long names
    if (axis.words) {
      axis.words.slice(0, 12).forEach(word => svg("text", {class: "axis", x: x(i) + 6,
        y: y(axis.words.length > 1 ? axis.words.indexOf(word) / (axis.words.length - 1) : 0.5) + 4},
        root, word.slice(0, 18)));
    } else {
      svg("text", {...middle, x: x(i), y: height - bottom + 16}, root, number(axis.low));
      svg("text", {...middle, x: x(i), y: top - 8}, root, number(axis.high));
    }
  });
  runs.forEach((run, r) => {
    const points = axes.map((axis, i) => [x(i), axis.at(axis.values[r])])
      .filter(p => p[1] !== null).map(p => `${p[0].toFixed(1)},${y(p[1]).toFixed(1)}`);
    const group = svg("g", {class: run.color}, root);
    const line = svg("polyline", {points: points.join(" "), class: "parallel"}, group);
    svg("title", {}, line, run.label);
  });
}

function figureOf(run, name) {
  return run.curves.find(c => c.name === name);
}
