'use strict';
// What every part of the page uses: elements, numbers as text, colors, the tooltip.

const data = JSON.parse(document.getElementById('data').textContent);

function element(tag, attributes = {}, ...children) {
  const isSvg = ['svg', 'g', 'path', 'line', 'rect', 'text', 'circle', 'clipPath'].includes(tag);
  const made = isSvg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (name.startsWith('aria-')) made.setAttribute(name, String(value));
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter(child => child !== null && child !== undefined));
  return made;
}

function number(value, digits = 4) {
  if (value === null || value === undefined || !isFinite(value)) return '–';
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e6) return (value / 1e6).toPrecision(3) + ' M';
  if (size >= 1e4) return Math.round(value).toLocaleString('en-US');
  if (size < 1e-3) return value.toExponential(1).replace('e-', 'e−');
  return String(Number(value.toPrecision(digits)));
}

function bytes(value) {
  for (const [unit, size] of [['GB', 1e9], ['MB', 1e6], ['KB', 1e3]])
    if (value >= size) return Number((value / size).toPrecision(3)) + ' ' + unit;
  return value + ' B';
}

const milliseconds = value => number(value, 3) + ' ms';
const percent = value => (value === null ? '–' : Math.round(100 * value) + '%');

const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const runColor = index => `var(--c${index % 8})`;

// Colors of modules: hues in the order of the modules' first appearance, alternating in lightness.
function moduleColor(index, count) {
  const dark = document.documentElement.dataset.theme === 'dark';
  const hue = (205 + 360 * index / Math.max(count, 1)) % 360, light = dark ? [56, 44] : [68, 56];
  return `hsl(${hue.toFixed(0)} ${dark ? 34 : 40}% ${light[index % 2]}%)`;
}

const tip = document.getElementById('tip');
function showTip(event, lines) {
  tip.replaceChildren(...lines.flatMap((line, i) => (i ? [element('br'), line] : [line])));
  tip.hidden = false;
  const box = tip.getBoundingClientRect(), gap = 14;
  const left = event.clientX + gap + box.width > innerWidth ? event.clientX - gap - box.width : event.clientX + gap;
  tip.style.left = Math.max(6, left) + 'px';
  tip.style.top = Math.max(6, Math.min(event.clientY + gap, innerHeight - box.height - 6)) + 'px';
}
const hideTip = () => { tip.hidden = true; };

// Round numbers that cut [from, to] into about `count` parts.
function ticks(from, to, count) {
  if (!(to > from)) return [from];
  const rough = (to - from) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(factor => factor * power).find(size => size >= rough);
  const all = [];
  const first = Math.ceil(from / step - 1e-9);
  for (let i = 0; i <= 2 * count + 2 && (first + i) * step <= to + step * 1e-9; ++i) all.push((first + i) * step);
  return all;
}

// Tables of cells that are texts or elements; `kinds` gives a class for each column.
function table(head, rows, kinds = [], tableClass = '') {
  const cell = (tag, content, i) =>
    element(tag, { class: kinds[i] || null }, ...(content instanceof Array ? content : [content]));
  return element('div', { class: 'scroll' }, element('table', { class: tableClass },
    element('tbody', {},
      element('tr', {}, ...head.map((text, i) => cell('th', text, i))),
      ...rows.map(row => element('tr', {}, ...row.map((content, i) =>
        content instanceof HTMLTableCellElement ? content : cell('td', content, i)))))));
}

function section(id, title, note, ...content) {
  const made = element('section', { id }, element('h2', {}, title), note ? element('p', { class: 'quiet' }, note) : null,
    ...content);
  document.getElementById('main').append(made);
  return made;
}

const redraws = [];  // called when the theme or a size changes
const redrawAll = () => redraws.forEach(draw => draw());

function startTheme() {
  const root = document.documentElement, dark = matchMedia('(prefers-color-scheme: dark)');
  const follow = () => { root.dataset.theme = dark.matches ? 'dark' : 'light', redrawAll(); };
  root.dataset.theme = dark.matches ? 'dark' : 'light';
  dark.addEventListener('change', follow);
  document.getElementById('theme').addEventListener('click', () => {
    root.dataset.theme = root.dataset.theme === 'dark' ? 'light' : 'dark', redrawAll();
  });
  let width = innerWidth;
  addEventListener('resize', () => { if (innerWidth !== width) width = innerWidth, redrawAll(); });
}
