#!/usr/bin/env python3
"""Drives the page of `linnet serve` in a headless browser, as the test server_page_in_a_browser: each kind of model is
tried, tokens stream, what else was likely is shown, Stop ends a text, themes, a key, a narrow screen. It fails on a
script error and on any request to another server. With --keep the screenshots stay in --folder.
"""
import argparse, json, time
from pathlib import Path

import drive_page
import drive_server
from drive_page import Browser, expect, failures


def visit(browser, url, **size):
    browser.call("Emulation.setDeviceMetricsOverride", width=size.get("width", 1100), height=800, deviceScaleFactor=1,
                 mobile=size.get("width", 1100) < 500)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": size.get("theme", "light")}])
    browser.call("Page.navigate", url=url)
    wait(browser, "document.readyState === 'complete' && typeof models !== 'undefined'")


def wait(browser, condition, seconds=60):
    end = time.monotonic() + seconds
    while not browser.evaluate(condition):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def choose(browser, model, text):
    browser.evaluate(f"document.getElementById('model').value = {model!r}; show(); document.getElementById('text').value = {text!r}")


def run(browser):
    # A busy browser may handle the click later: the last answer must not be taken for the next.
    browser.evaluate("document.getElementById('answer').replaceChildren()")
    browser.click("#go")
    return wait(browser, "!running && document.getElementById('answer').textContent !== ''")


def answer(browser):
    return browser.evaluate("document.getElementById('answer').textContent")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("linnet", "golden", "folder"):
        parser.add_argument("--" + name, type=Path, required=True)
    parser.add_argument("--browser", required=True)
    parser.add_argument("--keep", action="store_true")
    options = drive_server.options = parser.parse_args()
    options.linnet = str(options.linnet.resolve())
    drive_server.shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    models = [drive_server.word_model(name) for name in ("gpt2", "llama", "marian")]
    models += [drive_server.bert_model(name) for name in ("bert_model", "bert_classifier")]
    models.append(drive_server.long_model("long", 1))
    keys = options.folder / "keys"
    keys.write_text("sesame\n")
    keys.chmod(0o600)
    browser = Browser(options.browser, options.folder / "profile")
    with drive_server.Server(*models, "--context", "4096") as server, \
            drive_server.Server(models[0], "--api-key-file", str(keys)) as locked:
        home = f"http://127.0.0.1:{server.port}/"
        visit(browser, home)
        expect(wait(browser, "document.querySelectorAll('#model option').length === 6"), "all models are listed")
        choose(browser, "gpt2", "w5 w6")
        browser.evaluate("document.getElementById('temperature').value = 0; document.getElementById('tokens').value = 8")
        expect(run(browser), "a text is written")
        wanted = server.post("/v1/completions", {"model": "gpt2", "prompt": "w5 w6", "max_tokens": 8, "temperature": 0})
        expect(answer(browser) == wanted["choices"][0]["text"], "it is that of the server")
        expect(browser.evaluate("document.querySelectorAll('#likely .bar').length") == 5, "five tokens were likely")
        expect("ms to the first token" in browser.evaluate("document.getElementById('speed').textContent"), "latency")
        before = browser.evaluate("document.getElementById('likely').textContent")
        browser.click("#answer .token")
        expect(wait(browser, f"document.getElementById('likely').textContent !== {json.dumps(before)}"), "a click shows its token's")
        browser.screenshot(options.folder / "light.png")
        choose(browser, "llama", "w5 w6")
        expect(browser.evaluate("document.getElementById('chat').checked") and run(browser), "a conversation")
        first = answer(browser)
        browser.evaluate("document.getElementById('text').value = 'w8'; document.getElementById('temperature').value = 0")
        expect(run(browser), "its second question")
        messages = [{"role": "user", "content": "w5 w6"}, {"role": "assistant", "content": first}, {"role": "user", "content": "w8"}]
        wanted = server.post("/v1/chat/completions", {"model": "llama", "messages": messages, "max_tokens": 8, "temperature": 0})
        expect(answer(browser) == wanted["choices"][0]["message"]["content"], "is asked with the turns before it")
        expect(wait(browser, "document.querySelectorAll('.turn').length === 3"), "which are shown")
        browser.click("#anew")
        expect(wait(browser, "turns.length + document.querySelectorAll('.turn').length === 0"), "a new one")
        for model in ("marian", "bert_model", "bert_classifier"):
            choose(browser, model, "w7 w8")
            expect(run(browser) and not browser.evaluate("document.querySelector('#answer .error')"), model)
        choose(browser, "long", "w5")
        browser.evaluate("document.getElementById('tokens').value = 4000")
        browser.click("#go")
        expect(wait(browser, "document.querySelectorAll('#answer .token').length > 20"), "a long text streams")
        browser.click("#stop")
        expect(wait(browser, "!running"), "Stop ends it")
        server.wait_for("linnet_running", 0)
        choose(browser, "gpt2", "w5 " * 5000)
        expect(run(browser) and browser.evaluate("document.querySelector('#answer .error') !== null"), "an error is shown")
        browser.click("#theme")
        expect(wait(browser, "document.documentElement.dataset.theme === 'dark'"), "the dark theme")
        browser.screenshot(options.folder / "dark.png")
        visit(browser, home, width=375, theme="dark")
        expect(browser.evaluate("document.documentElement.scrollWidth") <= 375, "it fits a phone")
        visit(browser, f"http://127.0.0.1:{locked.port}/")
        expect(wait(browser, "!document.getElementById('keybox').hidden"), "a key is asked for")
        browser.evaluate("document.getElementById('key').value = 'sesame'; load()")
        expect(wait(browser, "document.querySelectorAll('#model option').length === 1"), "the key opens it")
        urls = [event["params"]["request"]["url"] for event in browser.events if event.get("method") == "Network.requestWillBeSent"]
        expect(all(url.startswith("http://127.0.0.1:") for url in urls), "no request to another server")
        errors = [event for event in browser.events if event.get("method") == "Runtime.exceptionThrown"]
        expect(not errors, f"no script errors {errors}")
        browser.close()
        for one in (server, locked):
            one.stop()
    if not options.keep:
        drive_server.shutil.rmtree(options.folder, ignore_errors=True)
    if failures:
        raise SystemExit(f"{len(failures)} failed")


if __name__ == "__main__":
    main()
