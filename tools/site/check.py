#!/usr/bin/env python3
"""Opens the site in a headless browser, from its folder as a reader without a server does.

    tools/site/check.py SITE BROWSER [SCREENSHOTS]

Ten searches must find their pages; no page may report an error, fetch anything from a network, or be wider than a phone; the
two themes must differ. With a third argument the screenshots are kept in that folder.
"""
import os
import re
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "drivers"))
from drive_page import Browser, expect, failures  # noqa: E402

# What a reader types, and the page that must be among the first five.
SEARCHES = {
    "translate": "start/translate.html", "quantize int8": "inference.html", "memory budget": "memory.html",
    "LoRA": "models.html", "tokenizer": "tokenizers.html", "openai": "serve.html", "onnx opset": "onnx.html",
    "install debian": "install.html", "torch": "python.html", "own op": "add_an_op.html"}
PAGES = ["index.html", "install.html", "cli.html", "models.html", "start/translate.html", "reference_python.html", "serve.html"]

site = Path(sys.argv[1]).resolve()
shots = Path(sys.argv[3]) if len(sys.argv) > 3 else None


def found(browser, words):
    """The addresses of the first results, as the theme lists them."""
    browser.evaluate("document.querySelector('[data-md-component=search-query]').focus()")
    browser.evaluate("(q => { q.value = %r; q.dispatchEvent(new Event('input', {bubbles: true}));"
                     " q.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true})); })"
                     "(document.querySelector('[data-md-component=search-query]'))" % words)
    results = "[...document.querySelectorAll('.md-search-result__item > a')].map(a => a.getAttribute('href'))"
    before, pages = None, []
    for _ in range(100):  # until there are results, and they no longer change
        time.sleep(0.1)
        pages = browser.evaluate(results)
        if pages and pages == before:
            break
        before = pages
    # A page's sections are results of their own.
    return list(dict.fromkeys(os.path.relpath(re.sub("[#?].*|^file://", "", page), site) for page in pages))[:5]


with tempfile.TemporaryDirectory() as profile:
    browser = Browser(sys.argv[2], profile)
    browser.open(site / "index.html")
    for words, page in SEARCHES.items():
        pages = found(browser, words)
        expect(page in pages, f"{words!r} finds {page} ({', '.join(pages)})")
        browser.open(site / "index.html")
    colors = []
    for dark in (False, True):
        browser.open(site / "index.html", dark=dark)
        browser.evaluate("localStorage.clear()")  # the theme keeps the choice of the first visit
        browser.open(site / "index.html", dark=dark)
        colors.append(browser.evaluate("getComputedStyle(document.body).backgroundColor"))
        for page in PAGES:
            for name, width, height in (("wide", 1280, 900), ("phone", 390, 844)):
                browser.open(site / page, width, height, dark)
                over = browser.evaluate("document.documentElement.scrollWidth - innerWidth")
                expect(over <= 0, f"{page} fits {width} pixels")
                if shots:
                    shots.mkdir(parents=True, exist_ok=True)
                    theme = "dark" if dark else "light"
                    browser.screenshot(shots / f"{page.replace('/', '_')}-{name}-{theme}.png", whole=False)
    expect(colors[0] != colors[1], f"light and dark differ: {colors}")
    problems = []
    for event in browser.events:
        parameters = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            problems.append("script error: " + str(parameters["exceptionDetails"])[:300])
        elif event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            problems.append("error: " + parameters["entry"]["text"])
        elif event.get("method") == "Runtime.consoleAPICalled" and parameters["type"] == "error":
            problems.append("console: " + str(parameters["args"])[:300])
        elif event.get("method") == "Network.requestWillBeSent":
            url = parameters["request"]["url"]
            if not url.startswith(("file://", "data:", "blob:")):
                problems.append("request: " + url)
    expect(not problems, f"no error and no request to a network {sorted(set(problems))}")
    browser.close()
sys.exit(1 if failures else 0)
