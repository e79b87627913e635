#!/usr/bin/env python3
"""Drives a running `linnet serve` with the Python clients of OpenAI and Hugging Face.

    python3 -m venv /tmp/clients && /tmp/clients/bin/pip install openai huggingface_hub numpy
    linnet serve ... --port 8080 & /tmp/clients/bin/python tools/check_serve_clients.py --url http://127.0.0.1:8080

Models of a kind that the server does not have are left out; what was used is printed.
"""
import argparse

import huggingface_hub
import openai


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--key", default="none")
    options = parser.parse_args()
    client = openai.OpenAI(base_url=options.url + "/v1", api_key=options.key, max_retries=0)
    models = {}
    for model in client.models.list():
        models.setdefault(model.kind + (" chat" if getattr(model, "chat", False) else ""), model.id)
        assert client.models.retrieve(model.id).id == model.id
    print("models", models)

    for kind in ("language", "language chat"):
        if kind not in models:
            continue
        asked = dict(model=models[kind], prompt="w5 w6", max_tokens=8, temperature=0)
        whole = client.completions.create(**asked, logprobs=3)
        parts = list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
        assert "".join(part.choices[0].text for part in parts if part.choices) == whole.choices[0].text
        assert parts[-1].usage.completion_tokens == whole.usage.completion_tokens == len(whole.choices[0].logprobs.tokens)
        for wrong, error in ((dict(asked, model="none"), openai.NotFoundError),
                             (dict(asked, temperature=-1), openai.BadRequestError),
                             (dict(asked, prompt="w5 " * 100000), openai.UnprocessableEntityError)):
            try:
                client.completions.create(**wrong)
            except error as caught:
                assert caught.message and caught.request_id
            else:
                raise AssertionError(wrong)
        print("completions", repr(whole.choices[0].text))
    if model := models.get("language chat"):
        asked = dict(model=model, messages=[{"role": "user", "content": "w5 w6"}], max_tokens=6, temperature=0)
        whole = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2).choices[0]
        parts = client.chat.completions.create(**asked, stream=True)
        assert "".join(part.choices[0].delta.content or "" for part in parts) == whole.message.content
        assert len(whole.logprobs.content[0].top_logprobs) == 2
        hub = huggingface_hub.InferenceClient(base_url=options.url + "/v1", api_key=options.key)
        told = hub.chat_completion(asked["messages"], model=model, max_tokens=6, temperature=0)
        assert told.choices[0].message.content == whole.message.content
        streamed = hub.chat_completion(asked["messages"], model=model, max_tokens=6, temperature=0, stream=True)
        assert "".join(part.choices[0].delta.content or "" for part in streamed) == whole.message.content
        print("conversations", repr(whole.message.content))
    if model := models.get("embedder"):
        vectors = client.embeddings.create(model=model, input=["w7 w8", "w9"]).data  # asks for base64
        plain = client.embeddings.create(model=model, input="w7 w8", encoding_format="float").data[0].embedding
        assert all(abs(a - b) < 1e-6 for a, b in zip(vectors[0].embedding, plain))
        hub = huggingface_hub.InferenceClient(options.url + "/embed", token=options.key)
        assert abs(float(hub.feature_extraction("w7 w8")[0][0]) - plain[0]) < 1e-6
        print("embeddings of", len(plain), "numbers")
    if "classifier" in models:
        hub = huggingface_hub.InferenceClient(options.url + "/classify", token=options.key)
        print("classes", [(one.label, one.score) for one in hub.text_classification("w7 w8")])
    if "translation" in models:
        hub = huggingface_hub.InferenceClient(options.url + "/translate", token=options.key)
        print("translation", repr(hub.translation("w7 w8").translation_text))


if __name__ == "__main__":
    main()
