'use strict';
// A page about one text: the tokens that an answer came from, and where each attention looked.

const lengthOf = name => data.sequences.find(sequence => sequence.name === name).tokens.length;
const tokensOf = name => data.sequences.find(sequence => sequence.name === name).tokens;

// Weights [heads][queries * keys] of one attention, which are two bytes each, the lower one first, in base64.
function weightsOf(map) {
  const text = atob(map.weights), size = lengthOf(map.queries) * lengthOf(map.keys), heads = [];
  for (let head = 0, at = 0; head < map.heads; ++head) {
    const weights = new Float64Array(size);
    for (let i = 0; i < size; ++i, at += 2) weights[i] = (text.charCodeAt(at) + 256 * text.charCodeAt(at + 1)) / 65535;
    heads.push(weights);
  }
  return heads;
}

function meanOf(heads) {
  return heads[0].map((_, i) => heads.reduce((sum, weights) => sum + weights[i], 0) / heads.length);
}

// A token as it is written on the page: what cannot be seen otherwise has a sign.
const visible = token => token.replaceAll('\n', '↵').replaceAll('\t', '⇥').replace(/^ /, '␣') || '∅';

function tokenButton(token, onclick) {
  return element('button', { class: 'token', type: 'button', onclick }, visible(token));
}

// A color between the card's and another one.
const shade = (color, share) => `color-mix(in srgb, ${color} ${Math.round(100 * Math.min(share, 1))}%, var(--card))`;

function tellToken(button, lines) {
  const show = event => {
    const box = button.getBoundingClientRect();
    showTip(event.clientX === undefined ? { clientX: box.left, clientY: box.bottom } : event, lines());
  };
  for (const name of ['pointerenter', 'pointermove', 'focus']) button.addEventListener(name, show);
  for (const name of ['pointerleave', 'blur']) button.addEventListener(name, hideTip);
}

class Answers {
  constructor() {
    this.chosen = 0;
    this.place = element('div', {});
    this.choice = element('div', { class: 'tokens', id: 'answers' }, ...data.answers.map((answer, i) =>
      tokenButton(answer.answer, () => { this.chosen = i, this.draw(); })));
    this.node = element('div', {}, data.answers.length > 1 ? this.choice : null, this.place);
  }

  draw() {
    [...this.choice.children].forEach((button, i) => button.setAttribute('aria-pressed', String(i === this.chosen)));
    const answer = data.answers[this.chosen];
    const all = Object.values(answer.attributions).flat(), largest = Math.max(...all.map(Math.abs), 1e-12);
    const strips = Object.entries(answer.attributions).map(([name, shares]) => element('div', { class: 'strip' },
      element('h3', {}, name), element('div', { class: 'tokens attribution' }, ...tokensOf(name).map((token, i) => {
        const button = tokenButton(token);
        button.style.background = shade(shares[i] < 0 ? 'var(--c0)' : 'var(--c1)', 0.85 * Math.abs(shares[i]) / largest);
        tellToken(button, () => [element('b', {}, visible(token)),
          `${shares[i] < 0 ? '−' : '+'}${number(Math.abs(shares[i]))} of the log probability`]);
        return button;
      }))));
    const gain = answer.log_probability - answer.baseline_log_probability, sum = all.reduce((a, b) => a + b, 0);
    const likeliest = table(['Answer', 'Probability', ''], answer.likeliest.map(({ answer: text, probability }) => [
      visible(text), number(probability, 3), element('td', { style: 'width: 55%' }, element('div', { class: 'split' },
        element('i', { style: `width: ${100 * probability}%; background: var(--accent)` })))]), ['', 'number', '']);
    this.place.replaceChildren(element('div', { class: 'card' },
      element('header', {}, element('h3', {}, `“${visible(answer.answer)}”, probability ${number(answer.probability, 3)}`)),
      ...strips,
      element('div', { class: 'legend' },
        element('span', {}, element('i', { style: 'background: var(--c1)' }), 'speaks for the answer'),
        element('span', {}, element('i', { style: 'background: var(--c0)' }), 'speaks against it'),
        element('span', { id: 'completeness' }, `log probability ${number(answer.log_probability)}; ` +
          `${number(answer.baseline_log_probability)} where every token is an average one; the shares add up to ` +
          `${number(sum)} of the ${number(gain)} between them`))), element('p', {}), likeliest);
  }
}

class Attention {
  constructor() {
    this.layer = 0, this.head = -1, this.query = null;  // head -1: the mean
    this.choice = element('select', { id: 'layer', onchange: () => this.choose(Number(this.choice.value), -1) },
      ...data.attention.map((map, i) => element('option', { value: i },
        map.module + (data.sequences.length > 1 ? `: ${map.queries} to ${map.keys}` : ''))));
    this.heads = element('div', { class: 'heads', id: 'heads' });
    this.canvas = element('canvas', { role: 'img', tabindex: 0, id: 'map' });
    this.canvas.addEventListener('pointermove', event => this.point(event));
    this.canvas.addEventListener('pointerdown', event => this.point(event));
    this.canvas.addEventListener('pointerleave', () => { this.under = null, hideTip(), this.drawMap(); });
    this.strips = element('div', {});
    this.node = element('div', {}, element('div', { class: 'bar' }, element('label', {}, 'Layer', this.choice)), this.heads,
      element('div', { class: 'card look' }, element('div', {}, this.canvas), this.strips));
  }

  choose(layer, head) {
    if (layer !== this.layer || !this.weights) {
      const map = data.attention[layer];
      this.layer = layer, this.under = null;
      this.weights = weightsOf(map), this.mean = meanOf(this.weights);
      this.queries = tokensOf(map.queries), this.keys = tokensOf(map.keys);
      if (this.query === null || this.query >= this.queries.length) this.query = this.queries.length - 1;
      this.fillHeads();
    }
    this.head = head;
    this.draw();
  }

  shown() { return this.head < 0 ? this.mean : this.weights[this.head]; }
  weight(query, key) { return this.shown()[query * this.keys.length + key]; }
  // Small weights stay visible.
  static strength(weight) { return Math.sqrt(weight); }

  fillHeads() {
    const one = (label, head) => element('button', { type: 'button', 'data-head': head,
      onclick: () => this.choose(this.layer, head) }, element('canvas', { width: 56, height: 56 }), label);
    this.heads.replaceChildren(one('mean', -1), ...this.weights.map((_, head) => one('head ' + head, head)));
  }

  draw() {
    for (const button of this.heads.children) {
      const head = Number(button.dataset.head);
      button.setAttribute('aria-pressed', String(head === this.head));
      const pen = button.firstChild.getContext('2d');
      pen.clearRect(0, 0, 56, 56);
      this.fill(pen, head < 0 ? this.mean : this.weights[head], 0, 0, 56, 56);
    }
    this.drawMap();
    this.drawStrips();
  }

  fill(pen, weights, left, top, width, height) {
    const rows = this.queries.length, columns = this.keys.length;
    pen.fillStyle = style('--accent');
    for (let i = 0; i < weights.length; ++i) {
      if (weights[i] < 5e-4) continue;
      const row = Math.floor(i / columns), column = i % columns;
      pen.globalAlpha = Attention.strength(weights[i]);
      pen.fillRect(left + column * width / columns, top + row * height / rows, width / columns, height / rows);
    }
    pen.globalAlpha = 1;
  }

  // Labels take a quarter of the width at most; they are left out where cells are smaller than letters.
  scales() {
    const ratio = window.devicePixelRatio || 1, width = this.canvas.clientWidth || 600;
    const pen = this.pen = this.canvas.getContext('2d'), font = '11px ' + getComputedStyle(document.body).fontFamily;
    pen.font = font;
    const widest = tokens => Math.max(...tokens.map(token => pen.measureText(visible(token)).width)) + 8;
    const cell = room => room / this.keys.length;
    this.left = Math.min(widest(this.queries), width / 4), this.top = Math.min(widest(this.keys), 90);
    this.size = Math.min(cell(width - this.left - 2), 34);
    this.labelled = this.size >= 10;
    if (!this.labelled) this.left = 4, this.top = 4, this.size = cell(width - 8);
    const height = this.top + this.size * this.queries.length + 4;
    this.canvas.width = Math.round(width * ratio), this.canvas.height = Math.round(height * ratio);
    this.canvas.style.height = height + 'px';
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = font;
  }

  drawMap() {
    this.scales();
    const { pen, size, left, top } = this, width = size * this.keys.length, height = size * this.queries.length;
    const map = data.attention[this.layer];
    this.canvas.setAttribute('aria-label', `Attention of ${map.module}: ${this.queries.length} queries, ${this.keys.length} keys`);
    pen.fillStyle = style('--shade');
    pen.fillRect(left, top, width, height);
    this.fill(pen, this.shown(), left, top, width, height);
    const outline = (x, y, w, h) => { pen.strokeStyle = style('--ink'), pen.lineWidth = 1.2, pen.strokeRect(x, y, w, h); };
    outline(left, top + this.query * size, width, size);
    if (this.under) outline(left + this.under[1] * size, top + this.under[0] * size, size, size);
    if (this.labelled) this.drawLabels();
  }

  drawLabels() {
    const { pen, size, left, top } = this;
    pen.textBaseline = 'middle', pen.textAlign = 'right';
    this.queries.forEach((token, i) => {
      pen.fillStyle = style(i === this.query ? '--ink' : '--quiet');
      pen.fillText(visible(token), left - 5, top + (i + 0.5) * size, left - 6);
    });
    pen.fillStyle = style('--quiet'), pen.textAlign = 'left';
    this.keys.forEach((token, i) => {
      pen.save();
      pen.translate(left + (i + 0.5) * size, top - 5);
      pen.rotate(-Math.PI / 2);
      pen.fillText(visible(token), 0, 0, top - 6);
      pen.restore();
    });
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const query = Math.floor((event.clientY - box.top - this.top) / this.size);
    const key = Math.floor((event.clientX - box.left - this.left) / this.size);
    const inside = query >= 0 && query < this.queries.length && key >= 0 && key < this.keys.length;
    if (!inside) { this.under = null, hideTip(), this.drawMap(); return; }
    this.under = [query, key];
    if (event.type === 'pointerdown') this.query = query, this.drawStrips();
    this.drawMap();
    showTip(event, [element('b', {}, `“${visible(this.queries[query])}” to “${visible(this.keys[key])}”`),
      `${number(this.weight(query, key), 3)}, ${this.head < 0 ? 'mean of all heads' : 'head ' + this.head}`]);
  }

  // The tokens as text: the query that is chosen, and how much of its attention each key gets.
  drawStrips() {
    const map = data.attention[this.layer];
    const queries = this.queries.map((token, i) => {
      const button = tokenButton(token, () => { this.query = i, this.drawMap(), this.drawStrips(); });
      button.setAttribute('aria-pressed', String(i === this.query));
      return button;
    });
    const keys = this.keys.map((token, i) => {
      const weight = this.weight(this.query, i), button = tokenButton(token);
      button.style.background = shade('var(--accent)', 0.8 * Attention.strength(weight));
      tellToken(button, () => [element('b', {}, visible(token)), number(weight, 3)]);
      return button;
    });
    const strip = (title, name, buttons) => element('div', { class: 'strip' }, element('h3', {}, title),
      element('div', { class: 'tokens ' + name }, ...buttons));
    this.strips.replaceChildren(strip(`From (${map.queries})`, 'queries', queries), strip(`to (${map.keys})`, 'keys', keys));
  }
}

function addAnswers() {
  if (!data.answers.length) return;
  const answers = new Answers();
  section('answer', 'What the answer came from', 'How much each token adds to the log probability of the answer, by ' +
    'integrated gradients from a text of average embeddings. Point at a token for its share.', answers.node);
  answers.draw();
}

function addAttention() {
  if (!data.attention.length) return;
  const attention = new Attention();
  section('attention', 'Attention', 'A row for each token that looks, a column for each that is looked at; every row sums to 1. ' +
    'The stronger its color, the larger the weight, by the square root. Choose a token to see its row as text.', attention.node);
  attention.choose(0, -1);
  redraws.push(() => attention.draw());
}

document.getElementById('subtitle').textContent =
  `A ${data.kind}; ` + data.sequences.map(sequence => `${sequence.name} of ${sequence.tokens.length} tokens`).join(', ');
startTheme();
addAnswers();
addAttention();
