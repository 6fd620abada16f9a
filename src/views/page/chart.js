"use strict";
// Draws curves as SVG: axes, marks of resumes and checkpoints, a cross hair that tells the values.

const SVG = document.getElementById("svg").namespaceURI; // so that the page has no URL
const MOST_POINTS = 2000; // of a curve; more are thinned, so that each extreme stays

function svg(name, attributes, parent, text) {
  const node = document.createElementNS(SVG, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.appendChild(node);
  return node;
}

function element(name, className, parent, text) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  if (parent) parent.appendChild(node);
  return node;
}

function number(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string" || !isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(2).replace("e+", "e");
  if (Number.isInteger(value) || size >= 1e4)
    return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ",");
  return String(parseFloat(value.toPrecision(5)));
}

function duration(seconds) {
  if (seconds < 60) return parseFloat(seconds.toPrecision(3)) + " s";
  const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60);
  if (hours === 0) return minutes + " min " + Math.floor(seconds % 60) + " s";
  if (hours < 48) return hours + " h " + (minutes % 60) + " min";
  return Math.floor(hours / 24) + " d " + (hours % 24) + " h";
}

// Numbers of about `wanted` ticks from low to high, in steps of 1, 2 or 5 times a power of ten.
function ticks(low, high, wanted) {
  const raw = (high - low) / wanted, power = Math.pow(10, Math.floor(Math.log10(raw)));
  const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= raw) || power;
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9 && found.length < 50; i++)
    found.push(parseFloat((i * step).toPrecision(12)));
  return found;
}

function logTicks(low, high) {
  const found = [], first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const factors = last - first <= 2 ? [1, 2, 5] : [1];
  const each = Math.max(1, Math.ceil((last - first) / 6));
  for (let power = first; power <= last; power += each)
    for (const factor of factors) {
      const value = factor * Math.pow(10, power);
      if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) found.push(value);
    }
  return found;
}

// Of each of MOST_POINTS / 4 parts the first, the lowest, the highest and the last point.
function thin(points) {
  if (points.length <= MOST_POINTS) return points;
  const kept = [], parts = MOST_POINTS / 4;
  for (let part = 0; part < parts; part++) {
    const begin = Math.floor(part * points.length / parts);
    const end = Math.floor((part + 1) * points.length / parts);
    let low = begin, high = begin;
    for (let i = begin; i < end; i++) {
      if (points[i].y < points[low].y) low = i;
      if (points[i].y > points[high].y) high = i;
    }
    const chosen = new Set([begin, low, high, end - 1]);
    Array.from(chosen).sort((a, b) => a - b).forEach(i => kept.push(points[i]));
  }
  return kept;
}

// A moving average that weighs each value by its distance, in which the first values count fully.
function smooth(points, weight) {
  let sum = 0, scale = 0;
  return points.map(p => {
    if (!isFinite(p.y)) return p;
    sum = weight * sum + (1 - weight) * p.y;
    scale = weight * scale + (1 - weight);
    return {x: p.x, y: sum / scale, step: p.step};
  });
}

// Parts without values that are not finite, or that a logarithm does not have.
function unbroken(points, isLog) {
  const parts = [];
  let part = [];
  for (const p of points) {
    if (isFinite(p.y) && (!isLog || p.y > 0)) part.push(p);
    else if (part.length) { parts.push(part); part = []; }
  }
  if (part.length) parts.push(part);
  return parts;
}

function range(values, isLog) {
  let low = Infinity, high = -Infinity;
  for (const v of values)
    if (isFinite(v) && (!isLog || v > 0)) { low = Math.min(low, v); high = Math.max(high, v); }
  if (low > high) return [isLog ? 0.1 : 0, 1];
  if (low === high) {
    const room = isLog ? low / 2 : Math.abs(low) * 0.1 || 1;
    return [low - room, high + room];
  }
  if (isLog) return [low, high];
  const room = (high - low) * 0.05;
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}

// series: [{name, color, points: [{x, y, step}]}]. marks: {resumes, checkpoints}, each with x.
// state: {time, smoothing}, for all charts; whether this one is logarithmic is its own.
class Chart {
  constructor(parent, title, series, marks, state) {
    Object.assign(this, {title, series, marks, state, isLog: false});
    this.card = element("figure", "card chart", parent);
    this.card.style.margin = "0";
    const top = element("div", "top", this.card);
    element("h3", "", top, title);
    const button = element("button", "", top, "log");
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => {
      this.isLog = !this.isLog;
      button.setAttribute("aria-pressed", String(this.isLog));
      this.draw();
    });
    this.place = element("div", "", this.card);
    this.legend = element("figcaption", "legend", this.card);
    this.draw();
  }

  draw() {
    const box = this.place.clientWidth || 430;
    this.width = Math.max(260, box);
    this.height = Math.round(Math.min(260, Math.max(190, this.width * 0.5)));
    this.shown = this.series.map(s => ({...s, points: this.state.time ?
      s.points.map(p => ({x: p.wall, y: p.y, step: p.step})) : s.points}));
    const all = this.shown.flatMap(s => s.points);
    this.xs = range(all.map(p => p.x), false);
    const low = all.reduce((a, p) => Math.min(a, p.x), Infinity);
    const high = all.reduce((a, p) => Math.max(a, p.x), -Infinity);
    if (low < high) this.xs = [low, high];
    this.ys = range(all.map(p => p.y), this.isLog);
    this.edge = {left: 54, right: 10, top: 10, bottom: 24};
    this.place.textContent = "";
    this.root = svg("svg", {viewBox: `0 0 ${this.width} ${this.height}`, role: "img",
      "aria-label": this.title}, this.place);
    this.drawAxes();
    this.drawMarks();
    this.shown.forEach(s => this.drawSeries(s));
    this.drawLegend();
    this.follow();
  }

  x(value) {
    const {left, right} = this.edge, [low, high] = this.xs;
    return left + (value - low) / (high - low) * (this.width - left - right);
  }

  y(value) {
    const {top, bottom} = this.edge, f = this.isLog ? Math.log10 : v => v;
    const low = f(this.ys[0]), high = f(this.ys[1]);
    return this.height - bottom - (f(value) - low) / (high - low) * (this.height - top - bottom);
  }

  drawAxes() {
    const {left, right, bottom} = this.edge;
    const across = this.isLog ? logTicks(...this.ys) : ticks(...this.ys, 5);
    for (const value of across) {
      const y = this.y(value);
      svg("line", {x1: left, x2: this.width - right, y1: y, y2: y, class: "gridline"}, this.root);
      svg("text", {x: left - 6, y: y + 4, "text-anchor": "end", class: "axis"}, this.root,
        number(value));
    }
    for (const value of ticks(...this.xs, Math.max(3, Math.floor(this.width / 110)))) {
      if (!this.state.time && !Number.isInteger(value)) continue;
      const x = this.x(value), isLast = x > this.width - 30;
      svg("text", {x, y: this.height - bottom + 16, class: "axis",
        "text-anchor": isLast ? "end" : "middle"}, this.root,
        this.state.time ? duration(value) : number(value));
    }
  }

  drawMarks() {
    const {top, bottom} = this.edge, base = this.height - bottom;
    const at = mark => this.x(this.state.time ? mark.wall : mark.x);
    const isInside = x => x >= this.edge.left - 1 && x <= this.width - this.edge.right + 1;
    for (const mark of this.marks.resumes) {
      const x = at(mark);
      if (!isInside(x)) continue;
      const line = svg("line", {x1: x, x2: x, y1: top, y2: base, class: "resume"}, this.root);
      svg("title", {}, line, mark.text);
    }
    for (const mark of this.marks.checkpoints) {
      const x = at(mark);
      if (!isInside(x)) continue;
      const triangle = svg("path", {d: `M${x} ${base - 7}l5 7h-10z`,
        class: mark.isBest ? "mark best" : "mark"}, this.root);
      svg("title", {}, triangle, mark.text);
    }
  }

  drawSeries(s) {
    const group = svg("g", {class: s.color, "data-curve": s.name}, this.root);
    const isSmooth = this.state.smoothing > 0 && s.points.length > 3;
    if (isSmooth) this.drawLines(group, s.points, "curve raw", s.dash);
    this.drawLines(group, isSmooth ? smooth(s.points, this.state.smoothing) : s.points, "curve",
      s.dash);
    for (const p of s.points) { // what is not finite: a cross at the upper edge
      if (isFinite(p.y)) continue;
      const x = this.x(p.x), y = this.edge.top;
      const cross = svg("path", {d: `M${x - 3} ${y - 3}l6 6m0 -6l-6 6`, class: "lost"}, group);
      svg("title", {}, cross, `${s.name} is ${p.y} at step ${p.step}`);
    }
  }

  drawLines(group, points, className, dash) {
    for (const part of unbroken(thin(points), this.isLog)) {
      const text = part.map(p => `${+this.x(p.x).toFixed(2)},${+this.y(p.y).toFixed(2)}`).join(" ");
      const line = svg("polyline", {points: text, class: className}, group);
      if (dash) line.setAttribute("stroke-dasharray", dash);
      if (part.length > 40) continue;
      for (const p of part)
        svg("circle", {cx: this.x(p.x), cy: this.y(p.y), r: part.length === 1 ? 3 : 2,
          class: "dot"}, group);
    }
  }

  drawLegend(step) {
    this.legend.textContent = "";
    for (const s of this.shown) {
      let p = s.points[s.points.length - 1];
      if (step !== undefined) p = nearest(s.points, step);
      const entry = element("span", s.color, this.legend);
      element("i", "", entry);
      const words = element("span", "", entry, `${s.label || s.name} ${p ? number(p.y) : ""}` +
        (p && step !== undefined ? ` at ${number(p.step)}` : ""));
      words.style.color = "var(--soft)";
    }
  }

  // A vertical line follows the pointer, and the legend tells the values there.
  follow() {
    const {top, bottom, left, right} = this.edge;
    const cross = svg("line", {y1: top, y2: this.height - bottom, x1: -9, x2: -9, class: "cross"},
      this.root);
    this.root.addEventListener("pointermove", event => {
      const box = this.root.getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width * this.width;
      if (x < left || x > this.width - right) return;
      cross.setAttribute("x1", x);
      cross.setAttribute("x2", x);
      const [low, high] = this.xs;
      this.drawLegend(low + (x - left) / (this.width - left - right) * (high - low));
    });
    this.root.addEventListener("pointerleave", () => {
      cross.setAttribute("x1", -9);
      cross.setAttribute("x2", -9);
      this.drawLegend();
    });
  }
}

function nearest(points, x) {
  let low = 0, high = points.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle].x < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - points[low - 1].x < points[low].x - x ? points[low - 1] : points[low];
}
