'use strict';
// Curves over steps: all charts share the range of steps, the choice of runs and the smoothing.

const view = { from: 0, to: 1, smoothing: 0, hidden: new Set() };
const charts = [];

function smoothed(values, keep) {
  let average = 0, weight = 0;
  return values.map(value => {
    if (value === null) return null;
    average = keep * average + (1 - keep) * value, weight = keep * weight + (1 - keep);
    return average / weight;
  });
}

class Chart {
  // series: {run, label, x: steps, y: values, dots: draw points instead of a noisy line}
  constructor(title, series, options = {}) {
    this.series = series, this.options = options, this.log = Boolean(options.log);
    this.logButton = element('button', {
      type: 'button', 'aria-pressed': this.log, title: 'Logarithmic scale',
      onclick: () => { this.log = !this.log, this.logButton.setAttribute('aria-pressed', this.log), this.draw(); },
    }, 'log');
    this.svg = element('svg', { role: 'img', 'aria-label': title });
    this.card = element('div', { class: 'card chart' }, element('header', {}, element('h3', {}, title), this.logButton),
      this.svg);
    for (const [name, handler] of Object.entries({ pointerdown: this.down, pointermove: this.move, pointerup: this.up,
      pointerleave: this.leave, dblclick: resetRange }))
      this.svg.addEventListener(name, handler.bind(this));
    this.clip = 'clip' + charts.length;
    charts.push(this);
  }

  shown() { return this.series.filter(series => !view.hidden.has(series.run)); }

  usesLog() { return this.log && this.shown().every(series => series.y.every(value => value === null || value > 0)); }

  scales() {
    this.width = this.svg.clientWidth || 400, this.height = 210;
    this.left = 52, this.right = this.width - 8, this.top = 8, this.bottom = this.height - 22;
    let low = Infinity, high = -Infinity;
    for (const series of this.shown()) {
      const values = view.smoothing && !series.dots ? smoothed(series.y, view.smoothing) : series.y;
      series.x.forEach((step, i) => {
        if (step < view.from || step > view.to || values[i] === null) return;
        low = Math.min(low, values[i]), high = Math.max(high, values[i]);
      });
    }
    if (low > high) low = 1, high = 2;
    const map = this.usesLog() ? Math.log10 : value => value;
    let from = map(low), to = map(high);
    const varies = to - from > 1e-9 * Math.max(Math.abs(from), Math.abs(to));
    const margin = varies ? 0.06 * (to - from) : Math.abs(to) * 0.1 || 1;
    from -= margin, to += margin;
    if (!this.usesLog() && low >= 0 && from < 0) from = 0;
    this.range = [from, to];
    this.y = value => this.bottom - (map(value) - from) / (to - from) * (this.bottom - this.top);
    this.x = step => this.left + (step - view.from) / (view.to - view.from || 1) * (this.right - this.left);
    this.stepAt = x => view.from + (x - this.left) / (this.right - this.left) * (view.to - view.from);
  }

  draw() {
    this.scales();
    const add = (...made) => this.svg.append(...made);
    this.svg.replaceChildren();
    this.svg.setAttribute('viewBox', `0 0 ${this.width} ${this.height}`);
    this.svg.style.height = this.height + 'px';
    this.mark = element('g', {});
    if (!this.shown().length) return;
    const [from, to] = this.range;
    const values = this.usesLog() ? this.logTicks(from, to) : ticks(from, to, 4);
    const step = values.length > 1 ? Math.abs(values[1] - values[0]) : 1;
    const digits = Math.max(3, Math.ceil(Math.log10(Math.max(...values.map(Math.abs)) / step || 1)) + 1);
    for (const value of values) {
      const y = this.y(value);
      add(element('line', { class: 'grid', x1: this.left, x2: this.right, y1: y, y2: y }),
        element('text', { x: this.left - 7, y: y + 4, 'text-anchor': 'end' }, number(value, digits)));
    }
    for (const step of ticks(view.from, view.to, Math.max(2, Math.floor(this.width / 110))))
      add(element('text', { x: this.x(step), y: this.height - 6, 'text-anchor': 'middle' }, number(step, 6)));
    add(element('line', { class: 'axis', x1: this.left, x2: this.right, y1: this.bottom, y2: this.bottom }));
    add(element('clipPath', { id: this.clip }, element('rect', { x: this.left, y: 0, width: this.right - this.left,
      height: this.height })));
    for (const series of this.shown()) this.drawSeries(series);
    add(this.mark);
  }

  logTicks(from, to) {
    const all = [];
    for (let power = Math.floor(from); power <= Math.ceil(to); ++power)
      for (const factor of to - from > 2.5 ? [1] : [1, 2, 5]) {
        const value = factor * 10 ** power;
        if (Math.log10(value) >= from && Math.log10(value) <= to) all.push(value);
      }
    return all.length > 1 ? all : ticks(10 ** from, 10 ** to, 4).filter(value => value > 0);
  }

  path(series, values) {
    let text = '', pen = false;
    series.x.forEach((step, i) => {
      if (values[i] === null) { pen = false; return; }
      // One point beyond each edge, so that lines leave the picture.
      if ((step < view.from && series.x[i + 1] < view.from) || (step > view.to && series.x[i - 1] > view.to)) return;
      text += (pen ? 'L' : 'M') + this.x(step).toFixed(1) + ' ' + this.y(values[i]).toFixed(1);
      pen = true;
    });
    return text;
  }

  drawSeries(series) {
    const color = runColor(series.run), clip = `url(#${this.clip})`;
    const line = (values, width, opacity) => this.svg.append(element('path', {
      d: this.path(series, values), fill: 'none', stroke: color, 'stroke-width': width, 'stroke-opacity': opacity,
      'stroke-linejoin': 'round', 'stroke-dasharray': series.dots ? '5 3' : null, 'clip-path': clip,
    }));
    if (series.dots) {
      line(series.y, 1.4, 0.9);
      series.x.forEach((step, i) => {
        if (series.y[i] !== null && step >= view.from && step <= view.to)
          this.svg.append(element('circle', { cx: this.x(step), cy: this.y(series.y[i]), r: 3, fill: color }));
      });
    } else if (view.smoothing) {
      line(series.y, 1, 0.22), line(smoothed(series.y, view.smoothing), 1.8, 1);
    } else {
      line(series.y, 1.5, 1);
    }
  }

  position(event) { return event.clientX - this.svg.getBoundingClientRect().left; }

  down(event) { this.began = this.position(event), this.svg.setPointerCapture(event.pointerId); }

  move(event) {
    const x = Math.min(Math.max(this.position(event), this.left), this.right);
    this.mark.replaceChildren();
    if (this.began !== undefined && Math.abs(x - this.began) > 4)
      this.mark.append(element('rect', { x: Math.min(x, this.began), width: Math.abs(x - this.began), y: this.top,
        height: this.bottom - this.top, fill: 'var(--accent)', 'fill-opacity': 0.15 }));
    this.mark.append(element('line', { x1: x, x2: x, y1: this.top, y2: this.bottom, stroke: 'var(--quiet)',
      'stroke-dasharray': '2 3' }));
    this.describe(event, this.stepAt(x));
  }

  describe(event, at) {
    const lines = [element('b', {}, 'step ' + number(Math.round(at), 9))];
    for (const series of this.shown()) {
      let best = -1;
      series.x.forEach((step, i) => {
        if (series.y[i] !== null && (best < 0 || Math.abs(step - at) < Math.abs(series.x[best] - at))) best = i;
      });
      if (best < 0) continue;
      this.mark.append(element('circle', { cx: this.x(series.x[best]), cy: this.y(series.y[best]), r: 3.5,
        fill: 'none', stroke: runColor(series.run), 'stroke-width': 2 }));
      lines.push(element('span', {}, element('i', { style: `background: ${runColor(series.run)}` }),
        `${series.label}: ${number(series.y[best])}` + (series.dots ? ` (step ${series.x[best]})` : '')));
    }
    showTip(event, lines);
  }

  up(event) {
    const x = Math.min(Math.max(this.position(event), this.left), this.right), began = this.began;
    this.began = undefined;
    if (began === undefined || Math.abs(x - began) < 8) return;
    const [from, to] = [this.stepAt(Math.max(Math.min(x, began), this.left)), this.stepAt(Math.max(x, began))];
    setRange(from, to);
  }

  leave() { this.began = undefined, this.mark && this.mark.replaceChildren(), hideTip(); }
}

function setRange(from, to) {
  view.from = from, view.to = to > from ? to : from + 1;
  document.getElementById('reset').hidden = false;
  charts.forEach(chart => chart.draw());
}

function resetRange() {
  const steps = data.runs.flatMap(run => [...run.train.step, ...run.valid.step]);
  view.from = Math.min(...[0, ...steps.slice(0, 1)]), view.to = steps.reduce((a, b) => Math.max(a, b), 1);
  const button = document.getElementById('reset');
  if (button) button.hidden = true;
  charts.forEach(chart => chart.draw());
}

function addCurves() {
  const columns = [];  // what any run has, in order
  for (const run of data.runs)
    for (const split of ['train', 'valid'])
      for (const name of Object.keys(run[split]))
        if (name !== 'step' && name !== 'seconds' && !columns.some(column => column.name === name && column.split === split))
          columns.push({ split, name });
  const skip = new Set(['valid learning_rate', 'valid grad_norm', 'valid memory_mb', 'valid tokens_per_second',
    'valid images_per_second', 'valid texts_per_second', 'valid loss']);
  const titles = { loss: 'Loss', learning_rate: 'Learning rate', grad_norm: 'Gradient norm', bleu: 'BLEU', chrf: 'chrF',
    memory_mb: 'Memory, MB', tokens_per_second: 'Tokens per second', images_per_second: 'Images per second',
    texts_per_second: 'Texts per second', exact_match: 'Exact match', accuracy: 'Accuracy', f1: 'F1',
    masked_accuracy: 'Accuracy on masked tokens', perplexity: 'Perplexity' };
  const several = data.runs.length > 1;
  const series = (split, name, dots) => data.runs.flatMap((run, index) => run[split][name] && run[split].step.length ? [{
    run: index, x: run[split].step, y: run[split][name], dots,
    label: (several ? run.name + ' ' : '') + (split === 'valid' ? 'validation' : 'training') }] : []);
  const order = { loss: 0, bleu: 1, accuracy: 1 };
  const grid = element('div', { class: 'charts' });
  columns.filter(column => !skip.has(column.split + ' ' + column.name))
    .sort((a, b) => (order[a.name] ?? 2) - (order[b.name] ?? 2))
    .forEach(({ split, name }) => {
      const all = series(split, name, split === 'valid');
      if (name === 'loss') all.push(...series('valid', 'loss', true));
      if (all.length) grid.append(new Chart(titles[name] || name, all, { log: name === 'grad_norm' }).card);
    });
  if (!charts.length) return;
  const slider = element('input', { type: 'range', min: 0, max: 0.99, step: 0.01, value: 0, id: 'smoothing',
    oninput: () => { view.smoothing = Number(slider.value), charts.forEach(chart => chart.draw()); } });
  section('curves', 'Curves', 'Drag over a chart to look closer; all charts follow. Dots are evaluations.',
    element('div', { class: 'bar' }, element('label', {}, 'Smoothing', slider),
      element('button', { type: 'button', id: 'reset', hidden: '', onclick: resetRange }, 'Show all steps')),
    grid);
  resetRange();
  redraws.push(() => charts.forEach(chart => chart.draw()));
}
