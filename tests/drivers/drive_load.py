#!/usr/bin/env python3
"""Many mixed requests at many connections, as the slow test server_under_load: none is lost, none gets another answer than
it gets alone, and the server's memory does not grow.

Prints requests a second and memory. --requests and --connections say how many.
"""
import argparse, json, random, threading, time
from pathlib import Path

import drive_server
from drive_server import Server, bert_model, check, equal, word_model


def make_requests(count):
    """Pairs of a path and a body, of a limited number of kinds, so that each answer can be compared."""
    draw, kinds = random.Random(5), []
    for i in range(60):
        words = " ".join(f"w{draw.randint(5, 60)}" for _ in range(draw.randint(1, 12)))
        settings = {"max_tokens": draw.randint(1, 16), "seed": i, "temperature": draw.choice([0, 1])}
        kinds += [("/v1/completions", {"model": "gpt2", "prompt": words, **settings}),
                  ("/v1/completions", {"model": "gpt2", "prompt": words, **settings, "stream": True}),
                  ("/v1/chat/completions", {"model": "llama", "messages": [{"role": "user", "content": words}], **settings}),
                  ("/v1/embeddings", {"model": "bert_model", "input": words}),
                  ("/classify", {"inputs": [words, words[:4]]}),
                  ("/translate", {"inputs": words[:20]}),
                  ("/v1/completions", {"model": "gpt2", "prompt": words, "max_tokens": -1})]
    return kinds, [draw.randrange(len(kinds)) for _ in range(count)]


def answer(server, connection, path, body):
    """What depends on the request alone."""
    status, _, text = server.ask("POST", path, body, connection=connection)
    if body.get("stream"):
        check(text.endswith("data: [DONE]\n\n"), text)
        events = [json.loads(event[6:]) for event in text.split("\n\n")[:-2]]
        return status, "".join(event["choices"][0]["text"] for event in events)
    found = json.loads(text)
    return status, found.get("choices") or found.get("data") or found["error"] if isinstance(found, dict) else found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("linnet", "golden", "folder"):
        parser.add_argument("--" + name, type=Path, required=True)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--connections", type=int, default=64)
    options = drive_server.options = parser.parse_args()
    options.linnet = str(options.linnet.resolve())
    drive_server.shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    models = [word_model(name) for name in ("gpt2", "llama", "marian")]
    models += [bert_model(name) for name in ("bert_model", "bert_classifier")]
    kinds, order = make_requests(options.requests)
    with Server(*models, "--queue", "1000", "--quiet") as server:
        alone = server.connect()
        wanted = [answer(server, alone, *kind) for kind in kinds]
        alone.close()
        position, failed, lock, memory = iter(order), [], threading.Lock(), []

        def client():
            connection = server.connect()
            try:
                while True:
                    with lock:
                        kind = next(position, None)
                    if kind is None:
                        return connection.close()
                    equal(answer(server, connection, *kinds[kind]), wanted[kind], kinds[kind])
            except BaseException as error:
                failed.append(repr(error))

        def run(count):
            nonlocal position
            position = iter(count)
            threads = [threading.Thread(target=client) for _ in range(options.connections)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            memory.append(server.metric("process_resident_memory_bytes"))

        run(order * 5)  # until the most requests at once have been seen: then memory stays as it is
        began = time.monotonic()
        run(order)
        seconds = time.monotonic() - began
        equal(failed[:3], [], "failures")
        answered = server.metric("linnet_requests_total")
        check(answered >= 6 * len(order) + len(kinds), answered)
        print(f"{len(order)} requests at {options.connections} connections: {len(order) / seconds:.0f} a second; "
              f"memory {memory[0] / 1e6:.1f} MB, then {memory[1] / 1e6:.1f} MB")
        # Threads that meet at another time can ask for a little more than ever before; a leak takes more in every round.
        while memory[-1] >= 1.05 * memory[-2]:
            check(len(memory) < 5, "every round takes more memory", memory)
            run(order)
        equal(failed[:3], [], "failures")
        server.stop()
    drive_server.shutil.rmtree(options.folder)


if __name__ == "__main__":
    main()
