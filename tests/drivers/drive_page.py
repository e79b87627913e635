#!/usr/bin/env python3
"""Drives the pages of `linnet report`, `linnet plan --html` and `linnet inspect` in a headless browser, as the test
report_in_a_browser.

Every part that reacts is used: zoom, log scale, smoothing, runs switched off, tooltips, the memory picture and its
legend, the tree of layers, samples, themes; answers, layers, heads and tokens of an inspection. It fails on a script error, on any request to a network, on a page of 2 MB
or more, and on a page that is wider than a phone. With --keep the screenshots stay in --folder.

The browser is spoken to over a pipe (--remote-debugging-pipe), so nothing but Python and the browser is needed.
"""
import argparse, base64, json, os, shutil, subprocess, sys, time
from pathlib import Path


class Browser:
    def __init__(self, program, profile):
        to_read, self.write_end = os.pipe()
        self.read_end, to_write = os.pipe()

        def place_pipes():  # the browser reads commands from 3 and answers on 4
            spare = [os.dup2(to_read, 103), os.dup2(to_write, 104)]
            os.dup2(spare[0], 3), os.dup2(spare[1], 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions",
             "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
             f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"],
            preexec_fn=place_pipes, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read), os.close(to_write)
        self.rest, self.sent, self.events = b"", 0, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")

    def receive(self):
        while b"\0" not in self.rest:
            part = os.read(self.read_end, 1 << 20)
            if not part:
                raise SystemExit("the browser ended")
            self.rest += part
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.sent += 1
        message = {"id": self.sent, "method": method, "params": parameters}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.sent:
                if "error" in answer:
                    raise SystemExit(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def evaluate(self, script):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise SystemExit(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def open(self, path, width=1280, height=900, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=f"file://{path}")
        for _ in range(200):
            if self.evaluate("document.readyState") == "complete" and self.evaluate("Boolean(document.querySelector('footer'))"):
                break
            time.sleep(0.05)

    def mouse(self, kind, x, y, button="none"):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=1 if button == "left" else 0,
                  buttons=1 if button == "left" else 0)

    def click(self, selector):
        self.evaluate(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center'}})")
        x, y, width, height = self.box(selector)
        self.mouse("mousePressed", x + width / 2, y + height / 2, "left")
        self.mouse("mouseReleased", x + width / 2, y + height / 2, "left")

    def box(self, selector):
        return self.evaluate(f"(() => {{ const b = document.querySelector({selector!r}).getBoundingClientRect();"
                             " return [b.x, b.y, b.width, b.height]; })()")

    def screenshot(self, path, whole=True):
        if whole:
            height = self.evaluate("document.documentElement.scrollHeight")
            width = self.evaluate("innerWidth")
            clip = {"x": 0, "y": 0, "width": width, "height": min(height, 7000), "scale": 1}
            image = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        else:
            image = self.call("Page.captureScreenshot", format="png")
        Path(path).write_bytes(base64.b64decode(image["data"]))

    def problems(self):
        """Script errors and requests for anything but the page itself."""
        found = []
        for event in self.events:
            parameters = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append("script error: " + json.dumps(parameters["exceptionDetails"])[:500])
            if event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
                found.append("error: " + parameters["entry"]["text"])
            if event.get("method") == "Network.requestWillBeSent":
                url = parameters["request"]["url"]
                if not url.startswith("file://") or not url.endswith(".html"):
                    found.append("request: " + url)
        return found

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
        except (SystemExit, OSError):
            pass
        self.process.wait(timeout=20)


failures = []


def expect(condition, what):
    print(("ok      " if condition else "FAILED  ") + what)
    if not condition:
        failures.append(what)


def make_runs(linnet, folder):
    runs = []
    for index, rate in enumerate(("3e-3", "1e-3", "1e-4")):
        run = f"{folder}/run-{index + 1}"
        subprocess.run(
            [linnet, "train", "dates", "--run", run, "--steps", "30", "--batch", "8", "--set", "eval_every=10", "--set",
             "save_every=30", "--set", "train_samples=400", "--set", "valid_samples=16", "--set", "tensorboard=true",
             "--lr", rate, "--profile", "wait=4,active=3"], check=True, stderr=subprocess.DEVNULL)
        runs.append(run)
    return runs


def use_charts(browser, several):
    first = ".chart svg"
    paths = lambda: browser.evaluate(f"document.querySelectorAll('{first} path').length")
    expect(browser.evaluate("document.querySelectorAll('.chart').length") >= 5, "there are at least five charts")
    browser.evaluate(f"document.querySelector('{first}').scrollIntoView({{block: 'center'}})")
    x, y, width, height = browser.box(first)
    browser.mouse("mouseMoved", x + width * 0.6, y + height / 2)
    tip = browser.evaluate("document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent")
    expect("step" in tip and "training" in tip, f"a chart's tooltip tells step and value: {tip[:60]!r}")
    line = lambda: browser.evaluate(f"document.querySelector('{first} path').getAttribute('d')")
    labels = lambda: browser.evaluate(f"[...document.querySelectorAll('{first} text')].map(t => t.textContent).join(' ')")
    before = labels()
    browser.mouse("mousePressed", x + width * 0.4, y + height / 2, "left")
    browser.mouse("mouseMoved", x + width * 0.6, y + height / 2, "left")
    browser.mouse("mouseReleased", x + width * 0.7, y + height / 2, "left")
    expect(labels() != before and not browser.evaluate("document.getElementById('reset').hidden"), "dragging zooms")
    browser.click("#reset")
    expect(labels() == before, "the button shows all steps again")
    straight = line()
    browser.click(".chart header button")
    expect(line() != straight, "the logarithmic scale draws another line")
    browser.click(".chart header button")
    count = paths()
    browser.evaluate("(s => { s.value = 0.9; s.dispatchEvent(new Event('input')); })(document.getElementById('smoothing'))")
    expect(paths() > count, "smoothing draws a second line")
    browser.evaluate("(s => { s.value = 0; s.dispatchEvent(new Event('input')); })(document.getElementById('smoothing'))")
    if several:
        browser.click("#runs .chip")
        expect(paths() < count, "a run can be switched off")
        browser.click("#runs .chip")
        # All of them, also on the charts whose scale is logarithmic, and on again.
        everything = "document.querySelectorAll('#runs .chip').forEach(chip => chip.click())"
        browser.evaluate(everything)
        expect(paths() == 0, "all runs can be switched off")
        browser.evaluate(everything)
        expect(paths() == count, "and on again")
        expect(paths() == count, "and on again")


def use_memory(browser):
    browser.evaluate("document.querySelector('.memory canvas').scrollIntoView({block: 'center'})")
    x, y, width, height = browser.box(".memory canvas")
    found = ""
    for fraction in (0.5, 0.4, 0.6, 0.3, 0.7):
        for up in (0.9, 0.8, 0.7, 0.6):
            browser.mouse("mouseMoved", x + width * fraction, y + height * up)
            text = browser.evaluate("document.getElementById('tip').hidden ? '' : document.getElementById('tip').innerText")
            found = text if "made by" in text else found
    expect("made by" in found and "f32[" in found, f"the memory picture names a tensor: {found.splitlines()[:2]}")
    colors = "(c => { const p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, s = new Set();" \
             " for (let i = 0; i < p.length; i += 400) s.add(p[i] + ',' + p[i+1] + ',' + p[i+2]); return s.size; })" \
             "(document.querySelector('.memory canvas'))"
    expect(browser.evaluate(colors) > 8, "it has a color for each module")
    browser.click(".memory .legend span")
    expect(browser.evaluate("document.querySelector('.memory .legend span').getAttribute('aria-pressed')") == "true",
           "the legend picks out a module")
    browser.click(".memory .legend span")


def use_the_rest(browser, several):
    rows = lambda: browser.evaluate("document.querySelectorAll('table.tree tr').length")
    before = rows()
    browser.evaluate("document.querySelectorAll('table.tree button[aria-expanded=false]')[0].click()")
    expect(rows() > before, "a module opens")
    if several:
        browser.evaluate("(s => { s.value = 1; s.dispatchEvent(new Event('change')); })(document.getElementById('layers-run'))")
        browser.evaluate("(s => { s.value = 1; s.dispatchEvent(new Event('change')); })(document.getElementById('memory-run'))")
        expect(rows() == before, "another run's layers are shown")
        expect("learning_rate" in browser.evaluate("document.querySelector('#configuration table').textContent"),
               "the keys that differ are listed")
    sample = browser.evaluate("document.querySelector('#samples pre').textContent")
    browser.evaluate("(s => { s.value = 0; s.dispatchEvent(new Event('change')); })(document.getElementById('sample-step'))")
    expect(len(sample) > 0, "there are samples")
    browser.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    expect(browser.evaluate("document.querySelectorAll('#configuration details tr').length") > 40, "all keys are listed")
    browser.evaluate("document.querySelectorAll('details').forEach(d => { d.open = false; })")
    paper = "getComputedStyle(document.body).backgroundColor"
    before = browser.evaluate(paper)
    browser.click("#theme")
    expect(browser.evaluate(paper) != before, "the theme changes")
    browser.click("#theme")


def use_inspection(browser):
    tip = "document.getElementById('tip').hidden ? '' : document.getElementById('tip').innerText"

    def point(selector, x_part=0.5, y_part=0.5):
        browser.evaluate(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center'}})")
        x, y, width, height = browser.box(selector)
        browser.mouse("mouseMoved", x + width * x_part, y + height * y_part)
        return browser.evaluate(tip)

    expect("log probability" in point(".attribution .token"), "a token tells its share of the answer")
    shares = lambda: browser.evaluate("[...document.querySelectorAll('.attribution .token')].map(t => t.style.background).join()")
    before = shares()
    browser.click("#answers button:nth-child(3)")
    expect(shares() != before, "another answer has other shares")
    sums = "Math.max(...data.attention.flatMap(map => weightsOf(map).flatMap(head => tokensOf(map.queries).map((_, q) => " \
           "Math.abs(head.slice(q * lengthOf(map.keys), (q + 1) * lengthOf(map.keys)).reduce((a, b) => a + b, 0) - 1)))))"
    expect(browser.evaluate(sums) < 1e-3, f"every row of attention sums to 1 within {browser.evaluate(sums):.0e}")
    pixels = "(() => { const c = document.getElementById('map'), p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;" \
             " let sum = 0; for (let i = 0; i < p.length; i += 4) sum = (sum * 31 + p[i]) % 1000003; return sum; })()"
    mean = browser.evaluate(pixels)
    browser.click("#heads button:nth-child(2)")
    expect(browser.evaluate(pixels) != mean, "a head can be chosen")
    head = browser.evaluate(pixels)
    browser.evaluate("(s => { s.value = s.options.length - 1; s.dispatchEvent(new Event('change')); })(document.getElementById('layer'))")
    expect(browser.evaluate(pixels) != head, "another layer is shown")
    found = point("#map", 0.4, 0.5)
    expect(" to " in found and "mean of all heads" in found, f"the map tells a weight: {found!r}")
    keys = lambda: browser.evaluate("[...document.querySelectorAll('.keys .token')].map(t => t.style.background).join()")
    before = keys()
    browser.click(".queries .token:nth-child(2)")
    expect(keys() != before, "another token looks elsewhere")
    expect(float(point(".keys .token").splitlines()[-1]) <= 1, "a key tells its weight")
    paper = "getComputedStyle(document.body).backgroundColor"
    before = browser.evaluate(paper)
    browser.click("#theme")
    expect(browser.evaluate(paper) != before, "the theme changes")


def check_inspection(browser, page, folder):
    print(f"-- {page}")
    browser.open(page)
    use_inspection(browser)
    take_pictures(browser, page, "inspect", folder)


def check_page(browser, page, several, name, folder):
    print(f"-- {page}")
    expect(os.path.getsize(page) < 2_000_000, f"the page has {os.path.getsize(page) / 1e3:.0f} KB")
    browser.open(page)
    use_charts(browser, several)
    use_memory(browser)
    use_the_rest(browser, several)
    take_pictures(browser, page, name, folder)


def take_pictures(browser, page, name, folder):
    for suffix, width, dark in (("light", 1280, False), ("dark", 1280, True), ("phone", 390, False)):
        browser.open(page, width=width, dark=dark)
        wide = browser.evaluate("document.documentElement.scrollWidth")
        expect(wide <= width, f"at {width} pixels the page is {wide} wide")
        browser.screenshot(f"{folder}/{name}-{suffix}.png")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--browser", required=True)
    parser.add_argument("--linnet", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--pages", nargs="*", help="pages to look at instead of small runs made for it")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    folder = os.path.abspath(arguments.folder)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    if arguments.pages:
        pages = [(os.path.abspath(page), "several" in page, Path(page).stem) for page in arguments.pages]
    else:
        runs = make_runs(arguments.linnet, folder)
        subprocess.run([arguments.linnet, "report", runs[0], "-o", f"{folder}/one.html"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([arguments.linnet, "report", *runs, "--out", f"{folder}/several.html"], check=True, stdout=subprocess.DEVNULL)
        pages = [(f"{folder}/one.html", False, "one"), (f"{folder}/several.html", True, "several")]
        subprocess.run([arguments.linnet, "plan", "dates", "--html", f"{folder}/plan.html"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([arguments.linnet, "inspect", runs[0], "May 2, 2014", "--answer", "2014-05-02", "-o", f"{folder}/inspect.html"],
                       check=True, stdout=subprocess.DEVNULL)
    browser = Browser(arguments.browser, f"{folder}/profile")
    try:
        for page, several, name in pages:
            check_page(browser, page, several, name, folder)
        if not arguments.pages:
            browser.open(f"{folder}/plan.html")
            use_memory(browser)
            browser.screenshot(f"{folder}/plan-light.png")
            check_inspection(browser, f"{folder}/inspect.html", folder)
        for problem in browser.problems():
            expect(False, problem)
    finally:
        browser.close()
    if not arguments.keep and not failures:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
