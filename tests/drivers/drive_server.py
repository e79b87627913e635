#!/usr/bin/env python3
"""Drives `linnet serve` over real sockets, as the test server_over_sockets: every endpoint against what the commands
print, limits and errors, clients that are slow, wrong or gone, and signals under load.

Only Python's standard library is needed. --golden is the folder tests/golden/pretrained.
"""
import argparse, base64, contextlib, fcntl, http.client, json, math, os, random, re, shutil, signal, socket, struct, subprocess
import sys, termios, threading, time
from pathlib import Path

options = None
QUESTION = [{"role": "user", "content": "w5 w6"}]
BYTE_TEMPLATE = ("{% for tool in tools or [] %}{{ tool.function.name }};{% endfor %}{% for m in messages %}"
                 "{% for call in m.tool_calls or [] %}{{ call.function.arguments.n }}{% endfor %}{{ m.content }}{% endfor %}")
TEMPLATE = "{% for m in messages %}{{ m['content'] }} {% endfor %}w9"


def check(holds, *what):
    if not holds:
        raise AssertionError(" ".join(str(one) for one in what))


def equal(found, wanted, what=""):
    check(found == wanted, what, "found", repr(found)[:600], "wanted", repr(wanted)[:600])


# --- models ---

def word_model(name):
    """A golden model whose tokenizer has the words w0, w1, ..."""
    folder = options.folder / name
    shutil.copytree(options.golden / name, folder)
    config = json.loads((folder / "config.json").read_text())
    words = ["[UNK]" if i == 3 else f"w{i}" for i in range(config["vocab_size"])]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    if name == "llama":
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return str(folder)


def bert_model(name):
    folder = options.folder / name
    shutil.copytree(options.golden / name, folder)
    config = json.loads((folder / "config.json").read_text())
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = special + [f"w{i}" for i in range(len(special), config["vocab_size"])]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    return str(folder)


def cross_encoder():
    """bert_numbers, of whose outputs the first is left: a number for two texts."""
    folder = Path(bert_model("bert_numbers"))
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    size = struct.unpack("<Q", whole[:8])[0]
    header, data = json.loads(whole[8:8 + size]), whole[8 + size:]
    kept = b""
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        part = data[begin:end]
        if name.startswith("classifier."):
            part, entry["shape"][0] = part[:len(part) // entry["shape"][0]], 1
        entry["data_offsets"] = [len(kept), len(kept) + len(part)]
        kept += part
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + kept)
    config = json.loads((folder / "config.json").read_text())
    config["num_labels"], config["sentence_transformers"] = 1, {"version": "5.0.0"}
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder.rename(folder.with_name("reranker")))


def long_model(name, seed, vocab=64):
    """A GPT-2 of random weights that writes thousands of tokens."""
    folder, width, layers, positions = options.folder / name, 32, 2, 4096
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": width, "n_layer": layers, "n_head": 2,
        "n_positions": positions, "vocab_size": vocab, "bos_token_id": 0, "eos_token_id": 0}))
    (folder / "vocab.txt").write_text("\n".join("[UNK]" if i == 3 else f"w{i}" for i in range(vocab)) + "\n")
    shapes = {"wte.weight": [vocab, width], "wpe.weight": [positions, width], "ln_f.weight": [width], "ln_f.bias": [width]}
    for i in range(layers):
        for part, shape in {"ln_1": None, "ln_2": None, "attn.c_attn": [width, 3 * width], "attn.c_proj": [width, width],
                            "mlp.c_fc": [width, 4 * width], "mlp.c_proj": [4 * width, width]}.items():
            shapes[f"h.{i}.{part}.weight"] = shape or [width]
            shapes[f"h.{i}.{part}.bias"] = [shape[1] if shape else width]
    draw, header, data = random.Random(seed), {}, b""
    for key, shape in shapes.items():
        count = 1
        for size in shape:
            count *= size
        values = [draw.gauss(0, 0.3) for _ in range(count)] if len(shape) > 1 else [1.0 if "ln" in key and "weight" in key else 0.0] * count
        part = struct.pack(f"<{count}f", *values)
        header["transformer." + key] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return str(folder)


def byte_model(name):
    """The same with a token for each byte, as GPT-2 spells it, and a chat template that tells of tools."""
    folder = Path(long_model(name, 3, 257))
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in visible]
    spelled = {byte: chr(byte) for byte in visible} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    (folder / "vocab.txt").unlink()
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": 256, "content": "<|end|>", "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "fuse_unk": False,
                  "end_of_word_suffix": None, "byte_fallback": False, "merges": [],
                  "vocab": {spelled[byte]: byte for byte in range(256)} | {"<|end|>": 256}}}))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "bos_token_id": 256, "eos_token_id": 256}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": BYTE_TEMPLATE, "eos_token": "<|end|>"}))
    return str(folder)


# --- the server and its clients ---

def linnet(*arguments, text=None):
    done = subprocess.run([options.linnet, *arguments], input=text, capture_output=True, text=True,
                          env={**os.environ, "LINNET_LOG": "off"})
    equal(done.returncode, 0, f"linnet {arguments}: {done.stderr}")
    return done.stdout


class Server:
    def __init__(self, *arguments, before=(), stderr=None):
        self.log_path = options.folder / f"log{random.random()}"
        self.log_file = open(self.log_path, "w")
        self.process = subprocess.Popen([*before, options.linnet, "serve", *arguments, "--port", "0"], stdout=subprocess.PIPE,
                                        stderr=stderr or self.log_file, text=True, env={**os.environ, "LINNET_LOG": "info"})
        for line in self.process.stdout:
            if found := re.match(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                return
        raise AssertionError("the server did not start: " + self.log())

    def log(self):
        return self.log_path.read_text()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.log_file.close()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        equal(self.process.wait(60), 0, "the exit code " + self.log())

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, method, path, body=None, headers=None, connection=None):
        own = connection or self.connect()
        try:
            data = body if isinstance(body, (bytes, str)) or body is None else json.dumps(body)
            own.request(method, path, data, headers or {})
            answer = own.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            if not connection:
                own.close()

    def post(self, path, body, **more):
        status, _, text = self.ask("POST", path, body, **more)
        equal(status, 200, text)
        return json.loads(text)

    def refused(self, status, path, body, **more):
        found, headers, text = self.ask(more.pop("method", "POST"), path, body, **more)
        equal(found, status, text)
        error = json.loads(text)["error"]
        check(error["message"] and error["type"], text)
        check("X-Request-Id" in headers, headers)
        return error

    def stream(self, path, body):
        """The events of a stream, parsed."""
        connection = self.connect()
        connection.request("POST", path, json.dumps({**body, "stream": True}))
        answer = connection.getresponse()
        equal(answer.status, 200)
        check(answer.getheader("Content-Type").startswith("text/event-stream"))
        events = answer.read().decode().split("\n\n")
        equal(events[-2:], ["data: [DONE]", ""])
        connection.close()
        return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]

    def raw(self, data, seconds=20):
        with socket.create_connection(("127.0.0.1", self.port)) as client:
            client.settimeout(seconds)
            client.sendall(data)
            return read_all(client)

    def metric(self, name):
        _, _, text = self.ask("GET", "/metrics")
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(re.escape(name) + r"[ {]", line))

    def wait_for(self, name, value):
        for _ in range(1500):
            if self.metric(name) == value:
                return
            time.sleep(0.02)
        raise AssertionError(f"{name} is {self.metric(name)}, not {value}")


def read_all(client):
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(65536):
            data += part
    return data.decode()


def together(jobs):
    """Runs functions in threads of their own; their results, in order."""
    results, threads = [None] * len(jobs), []

    def run(i, job):
        try:
            results[i] = job()
        except BaseException as error:  # given to whoever waits
            results[i] = error

    for i, job in enumerate(jobs):
        threads.append(threading.Thread(target=run, args=(i, job)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


# --- what is tested ---

def texts_are_those_of_generate(server, models):
    lines, bodies = [], []
    for i in range(12):
        prompt = " ".join(f"w{5 + (i * 7 + k) % 60}" for k in range(1 + i % 5))
        settings = {"max_tokens": 6 + i, "temperature": 0 if i % 3 == 0 else 1.3, "seed": i}
        lines.append(json.dumps({"prompt": prompt, **settings}))
        bodies.append({"model": "gpt2", "prompt": prompt, **settings})
    wanted = [json.loads(line)["text"]
              for line in linnet("generate", models["gpt2"], "--jsonl", "-", text="\n".join(lines)).splitlines()]
    equal(linnet("generate", models["gpt2"], "--prompt", bodies[1]["prompt"], "--max-tokens", "7", "--temperature", "1.3",
                 "--seed", "1"), wanted[1] + "\n", "alone")
    found = together([lambda body=body: server.post("/v1/completions", body) for body in bodies])
    equal([one["choices"][0]["text"] for one in found], wanted, "beside others")
    for body, text in zip(bodies[:4], wanted):
        events = server.stream("/v1/completions", {**body, "stream_options": {"include_usage": True}})
        equal("".join(event["choices"][0]["text"] for event in events[:-1]), text, "streamed")
        check(events[-2]["choices"][0]["finish_reason"] in ("length", "stop"))
        check(events[-1]["usage"]["completion_tokens"] > 0)
    one = found[0]
    check(one["object"] == "text_completion" and one["model"] == "gpt2" and one["id"], one)
    equal(one["usage"]["total_tokens"], one["usage"]["prompt_tokens"] + one["usage"]["completion_tokens"])
    several = server.post("/v1/completions", {"model": "gpt2", "prompt": ["w5", [6, 7]], "n": 2, "seed": 3, "max_tokens": 4})
    equal([choice["index"] for choice in several["choices"]], [0, 1, 2, 3])
    echo = server.post("/v1/completions", {"model": "gpt2", "prompt": "w5", "echo": True, "max_tokens": 2, "logprobs": 3,
                                           "seed": 3})
    choice = echo["choices"][0]
    check(choice["text"].startswith("w5"), choice)
    equal([len(top) for top in choice["logprobs"]["top_logprobs"]], [3, 3])
    stopped = server.post("/v1/completions", {"model": "gpt2", "prompt": "w5", "temperature": 0, "max_tokens": 8,
                                              "stop": "w1"})["choices"][0]
    check("w1" not in stopped["text"], stopped)


def conversations(server, models):
    body = {"model": "llama", "messages": QUESTION, "temperature": 0, "max_tokens": 6}
    wanted = linnet("generate", models["llama"], "--chat", "--prompt", "w5 w6", "--temperature", "0", "--max-tokens", "6")
    found = server.post("/v1/chat/completions", body)
    equal(found["choices"][0]["message"], {"role": "assistant", "content": wanted[:-1]})
    parts = [{"type": "text", "text": "w5 "}, {"type": "text", "text": "w6"}]
    again = server.post("/v1/chat/completions", {**body, "messages": [{"role": "user", "content": parts}]})
    equal(again["choices"][0]["message"]["content"], wanted[:-1])
    events = server.stream("/v1/chat/completions", {**body, "logprobs": True, "top_logprobs": 2})
    equal(events[0]["choices"][0]["delta"]["role"], "assistant")
    equal("".join(event["choices"][0]["delta"].get("content", "") for event in events), wanted[:-1])
    token = events[1]["choices"][0]["logprobs"]["content"][0]
    equal(token["top_logprobs"][0]["token"], token["token"], "greedy")
    check(token["logprob"] < 0 and len(token["top_logprobs"]) == 2, token)
    server.refused(400, "/v1/chat/completions", {**body, "model": "gpt2"})


def rows_are_those_of_commands(server, models):
    texts = ["w7 w8 w9", "w10", "w5 w6 w7 w8 w9 w10 w11 w12"]
    wanted = [[float(x) for x in linnet("embed", models["bert_model"], text=text + "\n").split()] for text in texts]
    together([lambda: equal(server.post("/embed", {"inputs": texts}), wanted, "embeddings") for _ in range(4)])
    found = server.post("/v1/embeddings", {"model": "bert_model", "input": texts, "encoding_format": "base64"})
    for row, one in zip(wanted, found["data"]):
        equal(list(struct.unpack(f"<{len(row)}f", base64.b64decode(one["embedding"]))),
              list(struct.unpack(f"<{len(row)}f", struct.pack(f"<{len(row)}f", *row))))
    equal(server.post("/v1/embeddings", {"model": "bert_model", "input": texts[0]})["data"][0]["embedding"], wanted[0])
    found = server.post("/v1/embeddings", {"model": "bert_model", "input": [[2, 7, 8, 9, 3], [2, 10, 3]]})
    equal([one["embedding"] for one in found["data"]], wanted[:2], "token ids as they are")
    equal(found["usage"]["prompt_tokens"], 8)
    for tokens in ([99999], [7] * 5000):
        server.refused(422, "/v1/embeddings", {"model": "bert_model", "input": tokens})
    predicted = [json.loads(line) for line in
                 linnet("predict", models["bert_classifier"], "--json", text="\n".join(texts) + "\n").splitlines()]
    classes = server.post("/classify", {"model": "bert_classifier", "inputs": texts})
    equal([one[0]["label"] for one in classes], [one["label"] for one in predicted])
    for one, line in zip(classes, predicted):
        check(abs(one[0]["score"] - line["probability"]) < 1e-6, one, line)
    one = {"model": "bert_classifier", "inputs": texts[0], "parameters": {"top_k": 1}}
    equal(len(server.post("/classify", one)[0]), 1)
    pairs_are_judged(server, models, texts)
    sources = ["w7 w8", "", "w9 w10 w11"]
    wanted = [linnet("generate", models["marian"], "--prompt", text, "--beam", "4")[:-1] if text else "" for text in sources]
    found = server.post("/translate", {"model": "marian", "inputs": sources, "parameters": {"num_beams": 4}})
    equal([one["translation_text"] for one in found], wanted, "translations of a folder")
    sources = ["14 May 1998", "", "3/7/21", "Monday, 2 March 2020"]
    wanted = linnet("translate", models["run"], text="\n".join(sources) + "\n").split("\n")[:4]
    found = server.post("/translate", {"model": "run", "inputs": sources})
    equal([one["translation_text"] for one in found], wanted, "translations of a run")


def pairs_are_judged(server, models, texts):
    """Two texts at a time: classes, and documents by their scores."""
    table = options.folder / "pairs.tsv"
    table.write_text("text\tpair\n" + "".join(f"w5 w6\t{text}\n" for text in texts))
    for name in ("bert_classifier", "reranker"):
        lines = linnet("predict", models[name], "--json", "--pair-column", "pair", str(table)).splitlines()
        predicted = [json.loads(line) for line in lines]
        found = server.post("/classify", {"model": name, "inputs": [["w5 w6", text] for text in texts]})
        for one, line in zip(found, predicted):
            check(abs(one[0]["score"] - line.get("number", line.get("probability"))) < 1e-6, one, line)
    scores = [line["number"] for line in predicted]
    printed = linnet("score", models["reranker"], text="".join(f"w5 w6\t{text}\n" for text in texts)).splitlines()
    check(all(abs(float(line.split("\t")[0]) - score) < 1e-6 for line, score in zip(printed, scores)), printed, scores)
    order = sorted(range(len(texts)), key=lambda i: -scores[i])
    raw = server.post("/rerank", {"model": "reranker", "query": "w5 w6", "texts": texts, "raw_scores": True})
    equal([one["index"] for one in raw], order)
    check(all(abs(one["score"] - scores[one["index"]]) < 1e-6 for one in raw), raw, scores)
    found = server.post("/v1/rerank", {"model": "reranker", "query": "w5 w6", "documents": texts, "top_n": 2,
                                       "return_documents": True})["results"]
    equal([one["index"] for one in found], order[:2])
    for one in found:
        equal(one["document"]["text"], texts[one["index"]])
        check(abs(one["relevance_score"] - 1 / (1 + math.exp(-scores[one["index"]]))) < 1e-6, one)
    server.refused(400, "/rerank", {"model": "bert_classifier", "query": "w5", "texts": texts})
    server.refused(400, "/rerank", {"model": "reranker", "texts": texts})
    server.refused(400, "/rerank", {"model": "reranker", "query": "w5", "texts": [1]})
    server.refused(422, "/classify", {"model": "reranker", "inputs": ["one text"]})


def formats(models):
    """Texts that are JSON, of a model that writes at random; biases, penalties, tools."""
    schema = {"type": "object", "additionalProperties": False, "required": ["kind", "count", "ready"], "properties": {
        "kind": {"enum": ["bird", "b\u00eate"]}, "count": {"type": "integer"}, "ready": {"type": ["boolean", "null"]},
        "name": {"type": "string"}, "more": {"type": "array", "items": {"anyOf": [{"type": "number"}, {"const": [1, {}]}]}}}}
    form = {"type": "json_schema", "json_schema": {"name": "bird", "schema": schema}}
    close = {str(ord(c)): 8 for c in '"]}'}  # so that strings and lists end
    with Server("birds/bytes 1=" + models["bytes"], "--context", "512", "--slots", "4") as server:
        for path in ("birds/bytes%201", "birds%2fbytes%201"):
            equal(json.loads(server.ask("GET", "/v1/models/" + path)[2])["id"], "birds/bytes 1")
        equal(server.ask("GET", "/v1/models/birds/bytes%2")[0], 404)
        body = {"messages": [{"role": "user", "content": "a bird, please"}], "temperature": 1.5, "max_tokens": 400,
                "logit_bias": close}
        names = set()
        for seed in range(6):
            answer = server.post("/v1/chat/completions", {**body, "seed": seed, "response_format": form})["choices"][0]
            equal(answer["finish_reason"], "stop", answer)
            found = json.loads(answer["message"]["content"])
            names.update(found)
            check(found["kind"] in ("bird", "b\u00eate") and isinstance(found["count"], int), found)
            check(found["ready"] in (True, False, None), found)
            check(all(one == [1, {}] or isinstance(one, (int, float)) for one in found.get("more", [])), found)
        check({"kind", "count", "ready"} <= names <= set(schema["properties"]), names)
        events = server.stream("/v1/chat/completions", {**body, "seed": 1, "n": 3, "response_format": {"type": "json_object"}})
        texts = ["", "", ""]
        for event in events:
            texts[event["choices"][0]["index"]] += event["choices"][0]["delta"].get("content", "")
        check(all(isinstance(json.loads(text), dict) for text in texts), texts)
        line = json.dumps({"messages": body["messages"], "seed": 2, "temperature": 1.5, "max_tokens": 400, "logit_bias": close,
                           "response_format": form})
        same = server.post("/v1/chat/completions", {**body, "seed": 2, "response_format": form})["choices"][0]
        written = json.loads(linnet("generate", models["bytes"], "--jsonl", "-", text=line))
        equal(written["text"], same["message"]["content"], "by the command")
        wrong = {**form, "json_schema": {"name": "x", "schema": {"properties": {"a": {"pattern": "(?=b)"}}}}}
        error = server.refused(400, "/v1/chat/completions", {**body, "response_format": wrong})
        check(error["param"] == "response_format" and 'the pattern "(?=b)"' in error["message"], error)

        only = {**body, "logit_bias": {"65": 100, "66": 96}, "temperature": 0, "max_tokens": 8}
        equal(server.post("/v1/chat/completions", only)["choices"][0]["message"]["content"], "A" * 8)
        turns = server.post("/v1/chat/completions", {**only, "frequency_penalty": 2})["choices"][0]["message"]["content"]
        check(set(turns) == {"A", "B"} and turns != "A" * 8, turns)

        # A special token has no text, and ends one all the same.
        ends = {"prompt": "a", "max_tokens": 4, "logit_bias": {"256": 100}, "ignore_end": True, "audio": None}
        equal(server.post("/v1/completions", ends)["choices"][0]["finish_reason"], "length")
        equal(server.post("/v1/completions", {**ends, "stop": ["b", "<|end|>"]})["choices"][0]["finish_reason"], "stop")

        tool = {"type": "function", "function": {"name": "forecast", "parameters": {"type": "object"}}}
        plain = server.post("/v1/chat/completions", only)["usage"]["prompt_tokens"]
        told = server.post("/v1/chat/completions", {**only, "tools": [tool]})
        equal(told["usage"]["prompt_tokens"], plain + len("forecast;"))
        equal(told["choices"][0]["finish_reason"], "length")
        likeliest = json.dumps({"prompt": "a", "max_tokens": 1, "logprobs": 20, "ignore_end": True}).encode()
        text = server.ask("POST", "/v1/completions", likeliest)[2]
        pairs = json.loads(text, object_pairs_hook=lambda found: found if len(found) == 20 else dict(found))
        keys = [key for key, _ in pairs["choices"][0]["logprobs"]["top_logprobs"][0]]
        check(len(set(keys)) == 20 and any(key.startswith("bytes:\\x") for key in keys), keys)
        call = {"role": "assistant", "content": None, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "forecast", "arguments": '{"n": 12345}'}}]}
        again = {**only, "messages": body["messages"] + [call, {"role": "tool", "tool_call_id": "1", "content": "sun"}]}
        equal(server.post("/v1/chat/completions", again)["usage"]["prompt_tokens"], plain + len("12345sun"))
        server.stop()


def chat_in_a_terminal(models):
    """Ctrl-C stops an answer and not the program; another line of the conversation follows."""
    controller, terminal = os.openpty()
    process = subprocess.Popen([options.linnet, "chat", models["bytes"], "--context", "4096", "--temperature", "0"],
                               stdin=terminal, stdout=terminal, stderr=terminal, env={**os.environ, "LINNET_LOG": "off"},
                               preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)))
    os.close(terminal)

    def read_until(what, more=b""):
        seen = more
        while what not in seen:
            seen += os.read(controller, 65536)
        return seen

    try:
        for _ in range(2):
            read_until(b"> ")
            os.write(controller, b"ab\n")
            read_until(b"ab\r\n")
            os.read(controller, 64)  # the answer has begun
            os.write(controller, b"\x03")
        read_until(b"> ")
        os.write(controller, b"/what\n")
        check(b"/reset" in read_until(b"Ctrl-C"))
        os.write(controller, b"/quit\n")
        equal(process.wait(60), 0)
    finally:
        process.kill()
        os.close(controller)


def second_signal_in_a_container(models):
    """The first process of a container outlives the default action of signals."""
    enter = ["unshare", "--pid", "--fork", "--kill-child"]
    if not shutil.which("unshare") or subprocess.run([*enter, "true"], capture_output=True).returncode != 0:
        return
    with Server(models["long"], "--context", "4096", before=enter) as server:
        child = int(Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text())
        connection = server.connect()
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "w5", "n": 60, "max_tokens": 4000, "ignore_end": True}))
        server.wait_for("linnet_running", 8)
        os.kill(child, signal.SIGTERM)
        while "stopping" not in server.log():
            time.sleep(0.02)
        os.kill(child, signal.SIGTERM)
        equal(server.process.wait(60), 128 + signal.SIGTERM)
        check("all requests are answered" not in server.log())
        connection.close()


def wrong_requests(server):
    good = {"model": "gpt2", "prompt": "w5"}
    server.refused(400, "/v1/completions", "{")
    server.refused(400, "/v1/completions", "[1]")
    server.refused(400, "/v1/completions", b'{"prompt": "\xff"}')
    server.refused(400, "/v1/completions", "[" * 100000)
    equal(server.refused(400, "/v1/completions", {**good, "temperatur": 1})["param"], "temperatur")
    for key, value in {"temperature": -1, "top_p": 2, "n": 0, "stop": [""], "prompt": {}, "max_tokens": "many",
                       "presence_penalty": 3, "logit_bias": {"x": 1}, "logprobs": 99, "stream": 1, "seed": 0.5, "prompt ": 1}.items():
        equal(server.refused(400, "/v1/completions", {**good, key: value})["param"], key)
    server.refused(400, "/v1/chat/completions", {"model": "llama", "messages": []})
    server.refused(400, "/v1/chat/completions", {"model": "llama", "messages": QUESTION, "tools": [{}]})
    tool = {"type": "function", "function": {"name": "f"}}  # which the template does not write
    error = server.refused(422, "/v1/chat/completions", {"model": "llama", "messages": QUESTION, "tools": [tool]})
    check("chat template" in error["message"], error)
    equal(server.refused(404, "/v1/completions", {**good, "model": "gpt5"})["code"], "model_not_found")
    server.refused(400, "/v1/completions", {"prompt": "w5"})  # which model?
    server.refused(400, "/v1/completions", {**good, "model": "bert_model"})
    server.refused(404, "/nowhere", {})
    server.refused(405, "/v1/completions", None, method="GET")
    server.refused(403, "/v1/completions", good, headers={"Origin": "http://elsewhere.example"})
    server.refused(422, "/v1/completions", {**good, "prompt": "w5 " * 5000})
    server.refused(422, "/v1/completions", {**good, "max_tokens": 100000})
    server.refused(422, "/v1/completions", {**good, "prompt": [999999]})
    server.refused(422, "/v1/completions", {**good, "beam": 64})
    server.refused(422, "/v1/completions", {**good, "logit_bias": {"99999": 1}})
    server.refused(422, "/v1/completions", {**good, "response_format": {"type": "json_object"}})  # words w0, w1, ...
    server.refused(413, "/v1/completions", {**good, "prompt": "w" * (2 << 20)})
    chunked = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + b"80000\r\n" + b" " * 0x80000 + b"\r\n"
    check(" 413 " in server.raw(chunked + chunked[-0x80000 - 9:] * 3).splitlines()[0])
    check(" 431 " in server.raw(b"GET / HTTP/1.1\r\nX: " + b"a" * 20000 + b"\r\n\r\n").splitlines()[0])
    for garbage in (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                    b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: 9\r\nContent-Length: 8\r\n\r\n"):
        check(" 400 " in server.raw(garbage).splitlines()[0], garbage)
    check(" 408 " in server.raw(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{").splitlines()[0])
    status, headers, text = server.ask("HEAD", "/health")
    equal((status, text), (200, ""))


def connections(server):
    connection = server.connect()  # kept alive
    for _ in range(3):
        equal(server.ask("GET", "/health", connection=connection)[0], 200)
    connection.close()
    two = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2  # in one packet
    answer = server.raw(two[:-2] + b"Connection: close\r\n\r\n")
    equal(answer.count("HTTP/1.1 200 OK"), 2, answer)
    old = server.raw(b"GET /health HTTP/1.0\r\n\r\n")
    check(old.startswith("HTTP/1.1 200") and "Connection: close" in old, old)
    body = json.dumps({"model": "gpt2", "prompt": "w5", "max_tokens": 3}).encode()
    slow = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(slow)
        check(client.recv(100).startswith(b"HTTP/1.1 100"))
        client.sendall(body)
        check(" 200 " in read_all(client))
    status, headers, page = server.ask("GET", "/")
    check(status == 200 and "default-src 'none'" in headers["Content-Security-Policy"] and "<html" in page)
    kinds = {one["id"]: one["kind"] for one in json.loads(server.ask("GET", "/v1/models")[2])["data"]}
    equal(kinds["marian"], "translation")
    equal(json.loads(server.ask("GET", "/v1/models/gpt2")[2])["id"], "gpt2")


def keys(models):
    path = options.folder / "keys"
    path.write_text("# for tests\r\nopen-sesame\r\nsecond\n")
    path.chmod(0o600)
    with Server(models["gpt2"], "--api-key-file", str(path)) as server:
        good = {"prompt": "w5", "max_tokens": 2}
        for header in ({}, {"Authorization": "Bearer"}, {"Authorization": "Bearer open-sesam"},
                       {"Authorization": "Bearer open-sesame2"}, {"Authorization": "Basic open-sesame"}):
            equal(server.refused(401, "/v1/completions", good, headers=header)["code"], "invalid_api_key")
        for key in ("open-sesame", "second"):
            server.post("/v1/completions", good, headers={"Authorization": "Bearer " + key})
        equal(server.ask("GET", "/health")[0], 200)
        equal(server.ask("GET", "/metrics")[0], 401)
        path.write_text("third\n")
        server.process.send_signal(signal.SIGHUP)
        for _ in range(500):
            if server.ask("POST", "/v1/completions", good, {"Authorization": "Bearer third"})[0] == 200:
                break
            time.sleep(0.02)
        server.refused(401, "/v1/completions", good, headers={"Authorization": "Bearer second"})
        server.stop()


def clients_that_go(models):
    long = {"prompt": "w5", "max_tokens": 4000, "ignore_end": True, "temperature": 1}
    with Server(models["long"], "--slots", "2", "--queue", "2", "--context", "4096", "--write-seconds", "1",
                "--request-seconds", "600") as server:
        def begin(body, size=None):
            client = socket.socket()
            if size:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
            client.connect(("127.0.0.1", server.port))
            data = json.dumps(body).encode()
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
            return client
        # Two run, two wait, and there is no room for more.
        clients = [begin(long) for _ in range(4)]
        server.wait_for("linnet_waiting", 2)
        equal(server.refused(429, "/v1/completions", long)["type"], "rate_limit_error")
        for client in clients:  # all of them go
            client.close()
        server.wait_for("linnet_running", 0)
        check(server.metric("linnet_generated_tokens_total") < 3 * 4000, "they were not cancelled")
        # In the middle of a stream.
        client = begin({**long, "stream": True})
        check(b"text_completion" in client.recv(65536) + client.recv(65536))
        client.close()
        server.wait_for("linnet_running", 0)
        # One that does not read what it asked for is cut off, and others do not wait for it.
        slow = begin({**long, "stream": True, "logprobs": 20}, 2048)
        text = server.post("/v1/completions", {**long, "max_tokens": 5, "seed": 1})["choices"][0]["text"]
        server.wait_for("linnet_connections", 1)
        slow.close()
        server.wait_for("linnet_running", 0)
        equal(server.post("/v1/completions", {**long, "max_tokens": 5, "seed": 1})["choices"][0]["text"], text)
        server.stop()
        check("499" in server.log(), server.log())
    with Server(models["long"], "--context", "4096", "--request-seconds", "0.05") as server:
        server.refused(408, "/v1/completions", long)
        connection = server.connect()
        connection.request("POST", "/v1/completions", json.dumps({**long, "stream": True}))
        check('"error"' in connection.getresponse().read().decode().strip().split("\n\n")[-1])
        connection.close()
        server.stop()


def hosts(models):
    """Names by which the server is called, as pages with a name of their own that leads here would (DNS rebinding)."""
    def status(server, head):
        return int(server.raw(head + b"\r\nConnection: close\r\n\r\n").split()[1])

    with Server(models["gpt2"], "--allowed-host", "Box.lan", "--allowed-host", "other.lan") as server:
        for host in (b"localhost", b"127.0.0.1:1", b"[::1]:80", b"box.lan:80", b"OTHER.lan"):
            equal(status(server, b"GET /health HTTP/1.1\r\nHost: " + host), 200, host)
        for host in (b"evil.com", b"evil.com:80", b"localhost.evil.com", b"other.lan.evil.com"):
            equal(status(server, b"GET /v1/models HTTP/1.1\r\nHost: " + host), 403, host)
            equal(status(server, b"POST /v1/completions HTTP/1.1\r\nContent-Length: 0\r\nHost: " + host + b"\r\nOrigin: http://" + host), 403)
        local = b" HTTP/1.1\r\nHost: localhost"
        equal(status(server, b"GET http://127.0.0.1:8080/health" + local), 200)
        equal(status(server, b"GET http://evil.com/health" + local), 403)
        equal(status(server, b"GET /health" + local + b"\r\nSec-Fetch-Site: cross-site"), 403)
        equal(status(server, b"GET /health" + local + b"\r\nOrigin: http://localhost\r\nOrigin: http://evil.com"), 400)
        server.refused(403, "/v1/models", None, method="GET", headers={"Host": "evil.com"})
        server.stop()


def turns(models):
    """A request for one token is answered while another waits for most of its many texts."""
    many = {"prompt": "w5", "n": 64, "max_tokens": 300, "ignore_end": True, "seed": 1}
    with Server(models["long"], "--slots", "2") as server:
        waiting = threading.Thread(target=lambda: server.post("/v1/completions", many))
        waiting.start()
        server.wait_for("linnet_running", 2)
        server.post("/v1/completions", {"prompt": "w5", "max_tokens": 1})
        left = server.metric("linnet_waiting")
        check(left > 40, "it waited until", left, "texts of the other request were left")
        waiting.join()
        server.stop()


def log_without_a_reader(models):
    with Server(models["gpt2"], stderr=subprocess.PIPE) as server:
        server.process.stderr.close()
        for _ in range(3):
            server.post("/v1/completions", {"prompt": "w5", "max_tokens": 1})
        server.stop()


def generate_ends_while_it_loads(models):
    folder = options.folder / "loading"
    shutil.copytree(models["gpt2"], folder)
    (folder / "vocab.txt").unlink()
    os.mkfifo(folder / "vocab.txt")  # who opens it to read waits for what comes
    process = subprocess.Popen([options.linnet, "generate", str(folder), "--prompt", "w5"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    try:
        with open(folder / "vocab.txt", "wb"):
            process.send_signal(signal.SIGTERM)
            equal(process.wait(60), -signal.SIGTERM)
    finally:
        process.kill()


def stop_under_load(models):
    body = {"prompt": "w5 w6", "max_tokens": 60, "ignore_end": True, "seed": 4}
    with Server(models["long"], "--slots", "2", "--queue", "1000") as server:
        wanted = server.post("/v1/completions", body)["choices"][0]["text"]
        counts, lock, told = {"answered": 0, "refused": 0}, threading.Lock(), threading.Event()

        def client():
            while True:
                late = told.is_set()
                try:
                    text = server.post("/v1/completions", body)["choices"][0]["text"]
                except (ConnectionError, http.client.RemoteDisconnected):
                    check(late or told.is_set(), "lost before the signal")
                    with lock:
                        counts["refused"] += 1
                    return
                equal(text, wanted)
                with lock:
                    counts["answered"] += 1

        def stop():
            time.sleep(0.3)
            # These are in before the signal, so each must be answered.
            sent = []
            for _ in range(8):
                connection = server.connect()
                connection.request("POST", "/v1/completions", json.dumps(body))
                sent.append(connection)
            told.set()
            server.stop()
            for connection in sent:
                equal(json.loads(connection.getresponse().read())["choices"][0]["text"], wanted, "after the signal")
                connection.close()

        together([client] * 12 + [stop])
        check(counts["answered"] > 5 and counts["refused"] == 12, counts)
        log = server.log()
        check("all requests are answered" in log and "request" in log and "w5" not in log, log[-2000:])


def reload_under_load(models):
    folder = options.folder / "changing"
    shutil.copytree(models["long"], folder)
    body = {"prompt": "w5 w6", "max_tokens": 40, "ignore_end": True, "seed": 4}
    with Server(str(folder), "--queue", "1000") as server:
        before, stop, seen = server.post("/v1/completions", body)["choices"][0]["text"], threading.Event(), set()

        def client():
            while not stop.is_set():
                seen.add(server.post("/v1/completions", body)["choices"][0]["text"])

        def change():
            try:
                shutil.copy(Path(models["other"]) / "model.safetensors", folder / "new")
                os.rename(folder / "new", folder / "model.safetensors")
                server.process.send_signal(signal.SIGHUP)
                server.wait_for("linnet_reloads_total", 1)
                after = server.post("/v1/completions", body)["choices"][0]["text"]
                (folder / "model.safetensors").write_bytes(b"broken")
                server.process.send_signal(signal.SIGHUP)
                server.wait_for("linnet_reloads_total", 2)
                equal(server.post("/v1/completions", body)["choices"][0]["text"], after, "what cannot be loaded")
                return after
            finally:
                stop.set()

        after = together([client] * 6 + [change])[-1]
        check(after != before)
        equal(seen - {before, after}, set(), "texts of neither model")
        check("stays as it was" in server.log())
        server.stop()


def main():
    global options
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("linnet", "golden", "folder"):
        parser.add_argument("--" + name, type=Path, required=True)
    options = parser.parse_args()
    options.linnet = str(options.linnet.resolve())
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    models = {name: word_model(name) for name in ("gpt2", "llama", "marian")}
    models.update({name: bert_model(name) for name in ("bert_model", "bert_classifier")}, reranker=cross_encoder())
    models.update(long=long_model("long", 1), other=long_model("other", 2), bytes=byte_model("bytes"))
    models["run"] = str(options.folder / "run")
    settings = {"d_model": 16, "d_ff": 32, "num_heads": 2, "num_layers": 1, "batch_size": 16, "num_buckets": 2,
                "train_samples": 200, "valid_samples": 8, "test_samples": 24, "max_steps": 30, "eval_every": 30}
    linnet("train", "dates", "--run", models["run"], *[part for key, value in settings.items() for part in ("--set", f"{key}={value}")])
    packed = str(options.folder / "gpt2.linnet")
    linnet("pack", models["gpt2"], "-o", packed)
    small = [packed] + [models[name] for name in ("llama", "marian", "run", "bert_model", "bert_classifier", "reranker")]

    def run(name, action):
        began = time.monotonic()
        action()
        print(f"{time.monotonic() - began:6.2f} s  {name}", flush=True)

    with Server(*small, "--read-seconds", "1", "--body-mb", "1") as server:
        run("texts", lambda: texts_are_those_of_generate(server, models))
        run("conversations", lambda: conversations(server, models))
        run("rows", lambda: rows_are_those_of_commands(server, models))
        run("wrong requests", lambda: wrong_requests(server))
        run("connections", lambda: connections(server))
        server.stop()
    run("formats", lambda: formats(models))
    run("chat", lambda: chat_in_a_terminal(models))
    run("keys", lambda: keys(models))
    run("clients that go", lambda: clients_that_go(models))
    run("hosts", lambda: hosts(models))
    run("turns", lambda: turns(models))
    run("log", lambda: log_without_a_reader(models))
    run("generate that loads", lambda: generate_ends_while_it_loads(models))
    run("SIGTERM", lambda: stop_under_load(models))
    run("two signals", lambda: second_signal_in_a_container(models))
    run("SIGHUP", lambda: reload_under_load(models))
    shutil.rmtree(options.folder)


if __name__ == "__main__":
    main()
