#!/usr/bin/env python3
"""What `linnet serve` answers with its options for speed, as the test server_with_options: with a prefix cache, a draft
model and quantized weights, each text is what `linnet generate` writes, also beside other requests, while clients go in the
middle, and when SIGTERM comes.
"""
import argparse, json, os, random, socket, time
from pathlib import Path

import drive_server
from drive_server import Server, check, equal, linnet, long_model, together, word_model

BEGINNINGS = [" ".join(f"w{5 + (k * step) % 50}" for k in range(90)) for step in (1, 7, 11)]


def make_requests():
    """Prompts that share beginnings, some sampled, some not."""
    draw, requests = random.Random(3), []
    for i in range(24):
        prompt = draw.choice(BEGINNINGS + ["w5"]) + "".join(f" w{draw.randint(5, 60)}" for _ in range(draw.randint(0, 40)))
        requests.append({"prompt": prompt, "max_tokens": draw.randint(1, 24), "temperature": draw.choice([0, 0.8, 1.2]),
                         "seed": i, "ignore_end": True})
    return requests


def generated(model, requests, *options):
    """What the command writes, one request after another, without any of the options for speed."""
    lines = "\n".join(json.dumps(request) for request in requests)
    return [json.loads(line)["text"]
            for line in linnet("generate", model, "--jsonl", "-", "--prefix-cache", "0", *options, text=lines).splitlines()]


def text_of(server, request):
    return server.post("/v1/completions", request)["choices"][0]["text"]


def streamed(server, request):
    return "".join(event["choices"][0]["text"] for event in server.stream("/v1/completions", request))


def leave_in_the_middle(server, request):
    """A client that goes when the first piece of its text has come."""
    body = json.dumps({**request, "max_tokens": 300, "stream": True}).encode()
    with socket.create_connection(("127.0.0.1", server.port), 60) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        check(client.recv(1000).startswith(b"HTTP/1.1 200"))


def answers(name, model, requests, wanted, *options, reused=False, drafted=False):
    with Server(model, *options, "--queue", "1000", "--quiet") as server:
        equal([text_of(server, request) for request in requests[:6]], wanted[:6], f"{name}, one by one")
        draw = random.Random(9)
        for _ in range(2):
            jobs = [(i, lambda request=request, ask=draw.choice([text_of, streamed]): ask(server, request))
                    for i, request in enumerate(requests)]
            jobs += [(None, lambda request=draw.choice(requests): leave_in_the_middle(server, request)) for _ in range(10)]
            draw.shuffle(jobs)
            found = together([job for _, job in jobs])
            for (i, _), text in zip(jobs, found):
                if i is not None:
                    equal(text, wanted[i], f"{name}, beside others: {requests[i]}")
        server.wait_for("linnet_running", 0)
        equal([text_of(server, request) for request in requests[:6]], wanted[:6], f"{name}, after clients that went")
        equal(server.metric("linnet_prefix_cache_hits_total") > 0, reused, f"{name}: the prefix cache")
        if drafted:
            guessed, accepted = (server.metric(f"linnet_draft_{what}_total") for what in ("tokens", "accepted"))
            check(0 < accepted < guessed, f"{name}: {accepted} of {guessed} guesses")
        server.stop()


def adapters():
    """Requests of several adapters, and of none, in one batch."""
    model, folder = word_model("gpt2"), str(drive_server.options.golden.parent / "lora" / "gpt2")
    adapter, draw, requests = ["--adapter", f"odd={folder}"], random.Random(4), []
    for i in range(18):
        prompt = " ".join(f"w{draw.randint(5, 60)}" for _ in range(1 + i % 6))
        requests.append({"prompt": prompt, "max_tokens": 8, "temperature": i % 2, "seed": i, "ignore_end": True,
                         "adapter": ["odd", "none"][i // 2 % 2]})
    lines = [{**request, "adapter": None if request["adapter"] == "none" else "odd"} for request in requests]
    wanted = generated(model, lines, *adapter)
    check(wanted != generated(model, [{**line, "adapter": None} for line in lines], *adapter), "the adapter changes texts")
    with Server(model, *adapter, "--queue", "1000", "--quiet") as server:
        for _ in range(2):
            found = together([lambda request=request: text_of(server, request) for request in requests])
            equal(found, wanted, "texts of adapters")
        check("even" in server.refused(422, "/v1/completions", {**requests[0], "adapter": "even"})["message"])
        server.stop()


def stop_under_load(model, requests, wanted, *options):
    """Each request that is in before the signal is answered, with its own text."""
    with Server(model, *options, "--slots", "3", "--queue", "1000") as server:
        waiting = []
        for request in requests:
            connection = server.connect()
            connection.request("POST", "/v1/completions", json.dumps(request))
            waiting.append(connection)
        # Those that the server has read are accepted; the first answer tells that reading is long over.
        first = json.loads(waiting[0].getresponse().read())["choices"][0]["text"]
        equal(first, wanted[0])
        server.wait_for("linnet_connections", len(requests) + 1)
        server.stop()
        for connection, text in list(zip(waiting, wanted))[1:]:
            equal(json.loads(connection.getresponse().read())["choices"][0]["text"], text, "after the signal")
        check("all requests are answered" in server.log(), server.log()[-2000:])


def cut_short(packed, body):
    """Of a packed model that is cut short under the server, a request is answered, if by an error, and others go on."""
    whole = Path(packed).read_bytes()
    for share in (0.9, 0.5, 0.02, 0):
        path = drive_server.options.folder / "cut.linnet"
        path.write_bytes(whole)
        with Server(str(path)) as server:
            server.post("/v1/completions", body)
            os.truncate(path, int(len(whole) * share))
            for _ in range(3):
                status, _, text = server.ask("POST", "/v1/completions", {**body, "prompt": f"w7 w8 w{random.randrange(9)}"})
                check(status == 200 or "cut short" in text, status, text)
            equal(server.ask("GET", "/health")[0], 200)
            server.process.terminate()
            check(server.process.wait(60) in (0, 2), server.log())  # 2: it says that the file was cut short


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("linnet", "golden", "folder"):
        parser.add_argument("--" + name, type=Path, required=True)
    options = drive_server.options = parser.parse_args()
    options.linnet = str(options.linnet.resolve())
    drive_server.shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    model, draft = long_model("long", 1), long_model("draft", 1)
    requests = make_requests()
    wanted = generated(model, requests)
    packed = str(options.folder / "long.linnet")
    linnet("pack", model, "-o", packed, "--quantize", "int8")
    quantized = generated(model, requests, "--quantize", "int8")
    check(quantized != wanted, "int8 changes some text")

    def run(name, *arguments, **more):
        began = time.monotonic()
        answers(name, *arguments, **more)
        print(f"{time.monotonic() - began:6.2f} s  {name}", flush=True)

    run("no option", model, requests, wanted, "--prefix-cache", "0")
    run("prefix cache", model, requests, wanted, "--prefix-cache", "1", reused=True)
    # The same model guesses most of its own tokens, but for those of weights in int8, which guesses more wrongly.
    run("draft", model, requests, wanted, "--draft", str(options.folder / "long.linnet"), "--draft-tokens", "3",
        "--prefix-cache", "0", drafted=True)
    run("int8", model, requests, quantized, "--quantize", "int8", reused=True)
    run("bf16", model, requests, generated(model, requests, "--quantize", "bf16"), "--quantize", "bf16", reused=True)
    run("packed int8, draft, prefix cache", packed, requests, quantized, "--draft", draft, "--prefix-cache", "4", reused=True,
        drafted=True)
    began = time.monotonic()
    stop_under_load(packed, requests, quantized, "--draft", draft)
    print(f"{time.monotonic() - began:6.2f} s  SIGTERM", flush=True)
    began = time.monotonic()
    cut_short(packed, {"model": "cut", "prompt": "w5", "max_tokens": 2})
    print(f"{time.monotonic() - began:6.2f} s  a model cut short")
    began = time.monotonic()
    adapters()
    print(f"{time.monotonic() - began:6.2f} s  adapters")
    drive_server.shutil.rmtree(options.folder)


if __name__ == "__main__":
    main()
