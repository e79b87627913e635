#!/usr/bin/env python3
"""Malformed, cut and mixed-up requests over raw sockets, as the test server_fuzzed: whatever comes, each answer is whole
HTTP, requests beside it get their own texts, and the server's memory does not grow.

Each attempt is made from --seed and its number; a failure names both, and --attempts N --first N repeats it.
"""
import argparse, json, random, re, socket, threading, time
from pathlib import Path

import drive_server
from drive_server import Server, check, equal, word_model

GOOD = json.dumps({"model": "gpt2", "prompt": "w5 w6", "max_tokens": 3, "seed": 1}).encode()
METHODS = [b"GET", b"POST", b"HEAD", b"PUT", b"OPTIONS", b"CONNECT", b"", b"G\x00T", b"A" * 300, b"PRI"]
TARGETS = [b"/", b"/health", b"/metrics", b"/v1/completions", b"/v1/models/%00", b"/../../etc/passwd", b"*", b"//", b"?",
           b"http://a/health", b"http://localhost/health", b"/" + b"a" * 9000, b"/v1/completions?a=b#c", b"/\xff\xfe", b"a:80"]
HEADERS = [b"Host: localhost", b"Host: a", b"Sec-Fetch-Site: cross-site", b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: 18446744073709551616",
           b"Content-Length: 5, 5", b"Content-Length : 5", b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked",
           b"Transfer-Encoding: chunked, chunked", b"Connection: close", b"Connection: upgrade", b"Upgrade: websocket",
           b"Expect: 100-continue", b"Expect: 200-ok", b"Accept-Encoding: gzip", b"Authorization: Bearer \x80", b"X: " + b"y" * 5000,
           b" folded: line", b": no name", b"no colon", b"X-Request-Id: \x01", b"Origin: null", b"Content-Type: text/plain", b"\x00: a"]
BODIES = [GOOD, GOOD[:20], b"", b"{}", b"null", b"[" * 500, b'{"prompt": "' + b"w5 " * 400 + b'"}', b"\xff" * 50,
          b'{"model": "gpt2", "prompt": "\\ud800"}', b'{"model": "gpt2", "prompt": [1e400]}',
          b'{"model": "gpt2", "prompt": "w5", "max_tokens": 1e99}', b'{"a": 1, "a": 2}']
CHUNKS = [b"0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n", b"-1\r\n", b"ffffffffffffffff\r\n", b"5;a=" + b"b" * 3000 + b"\r\nhello\r\n0\r\n\r\n",
          b"5\nhello\n0\n\n", b"3\r\nhello\r\n", b"0\r\nX: y\r\n\r\n", b"g\r\n"]


def one_request(draw):
    """A request that is right but for what chance puts in it."""
    kind = draw.random()
    body = draw.choice(BODIES)
    if kind < 0.3:
        head = [b"POST /v1/completions HTTP/1.1", b"Host: localhost", b"Content-Length: %d" % len(body)]
        for _ in range(draw.randint(0, 2)):
            head.insert(draw.randint(1, len(head)), draw.choice(HEADERS))
        return b"\r\n".join(head) + b"\r\n\r\n" + body
    if kind < 0.5:
        return b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + draw.choice(CHUNKS)
    version = draw.choice([b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/1.1 ", b"", b"http/1.1"])
    end = draw.choice([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"])
    lines = [draw.choice(METHODS) + b" " + draw.choice(TARGETS) + b" " + version] + [b"Host: localhost"] * draw.randint(0, 1)
    lines += [draw.choice(HEADERS) for _ in range(draw.randint(0, 6))]
    return end.join(lines) + end + end + draw.choice([b"", body])


def mutate(draw, data):
    data = bytearray(data)
    for _ in range(draw.choice([0, 0, 0, 1, 2, 8])):
        at = draw.randrange(len(data) + 1)
        what = draw.randrange(4)
        if what == 0 and data:
            data[min(at, len(data) - 1)] = draw.randrange(256)
        elif what == 1:
            data[at:at] = bytes(draw.randrange(256) for _ in range(draw.randint(1, 8)))
        elif what == 2:
            del data[at:at + draw.randint(1, 12)]
        else:
            data[at:at] = data[at:at + draw.randint(1, 40)]
    return bytes(data)


def check_answers(data):
    """Zero or more whole answers, of which the last may be cut where the server gives up a connection."""
    while data:
        head, found, rest = data.partition(b"\r\n\r\n")
        status = re.match(rb"HTTP/1\.[01] ([1-5]\d\d) ", head)
        check(status, "no HTTP: " + repr(data[:200]))
        if not found:
            return
        check(int(status[1]) != 500, "an internal error: " + repr(data[:600]))
        length = re.search(rb"\r\nContent-Length: (\d+)", head)
        if int(status[1]) < 200:
            data = rest
            continue
        if not length:  # a stream
            return
        # Of an answer to HEAD there is no body, and what follows begins the next answer or is nothing.
        is_head = rest == b"" or rest.startswith(b"HTTP/1.")
        data = rest if is_head else rest[int(length[1]):]


def attempt(server, seed, number):
    draw = random.Random(f"{seed} {number}")
    data = b"".join(one_request(draw) for _ in range(draw.choice([1, 1, 1, 2, 5])))
    data = mutate(draw, data)
    try:
        with socket.create_connection(("127.0.0.1", server.port), 20) as client:
            client.settimeout(20)
            for _ in range(draw.choice([1, 1, 1, 3])):  # in pieces
                cut = draw.randint(0, len(data))
                client.sendall(data[:cut])
                data = data[cut:]
            client.sendall(data)
            how = draw.random()
            if how < 0.15:
                return  # goes without a word
            if how < 0.85:
                client.shutdown(socket.SHUT_WR)  # so the server closes when it has answered
            else:
                client.settimeout(1)  # it may wait for another request
            found = b""
            try:
                while part := client.recv(65536):
                    found += part
            except ConnectionResetError:
                return  # the server closed with bytes unread
            except TimeoutError:
                check(how >= 0.85, "the server neither answers nor closes")
        check_answers(found)
    except (ConnectionError, BrokenPipeError):
        pass  # closed while we were sending
    except BaseException as error:
        raise AssertionError(f"--seed {seed} --first {number} --attempts 1: {error!r}") from error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("linnet", "golden", "folder"):
        parser.add_argument("--" + name, type=Path, required=True)
    parser.add_argument("--attempts", type=int, default=3000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first attempt")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--any-memory", action="store_true", help="of a sanitizer, which holds on to what is freed")
    options = drive_server.options = parser.parse_args()
    options.linnet = str(options.linnet.resolve())
    drive_server.shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    with Server(word_model("gpt2"), "--quiet", "--read-seconds", "0.3", "--body-mb", "1") as server:
        request = json.loads(GOOD)
        wanted = server.post("/v1/completions", request)["choices"]
        numbers, lock, failed, done = iter(range(options.first, options.first + options.attempts)), threading.Lock(), [], threading.Event()

        def fuzz():
            try:
                while not failed:
                    with lock:
                        number = next(numbers, None)
                    if number is None:
                        return
                    attempt(server, options.seed, number)
            except BaseException as error:
                failed.append(error)

        answered = 0
        memory, threads = [], []
        began = time.monotonic()
        threads = [threading.Thread(target=fuzz) for _ in range(options.clients)]
        for thread in threads:
            thread.start()
        connection = server.connect()  # a client that does nothing wrong
        while any(thread.is_alive() for thread in threads):
            equal(server.post("/v1/completions", request, connection=connection)["choices"], wanted, "beside them")
            answered += 1
            memory.append(server.metric("process_resident_memory_bytes"))
        connection.close()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        server.wait_for("linnet_running", 0)
        server.wait_for("linnet_connections", 1)
        half = max(memory[:len(memory) // 2 + 1])
        print(f"{options.attempts} attempts in {time.monotonic() - began:.1f} s, {answered} right requests beside them; "
              f"memory {half / 1e6:.1f} MB, then {max(memory) / 1e6:.1f} MB")
        check(options.any_memory or max(memory) < 1.1 * half, memory[-1])
        server.stop()
    drive_server.shutil.rmtree(options.folder)


if __name__ == "__main__":
    main()
