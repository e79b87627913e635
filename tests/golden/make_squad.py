"""Scores of answers by the functions of SQuAD's evaluation scripts, evaluate-v1.1.py and evaluate-v2.0.py.

    python make_squad.py

writes squad.json: a list of {"found", "wanted", "normalized", "v1": [exact match, F1], "v2": [exact match, F1]}, of
hand-made answers and of random ones.
"""

import collections
import json
import os
import random
import re
import string

CASES = [
    ("the Normans", ["Normans"]), ("The  normans!", ["the Normans", "Norman"]), ("a an the", ["The"]), ("the", []),
    ("", []), ("", ["something"]), ("Ada Lovelace", []), ("in 1815", ["1815", "in the year 1815"]),
    ("10th and 11th centuries", ["10th century", "the 10th and 11th century", "in the 10th and 11th centuries"]),
    ("É a fábrica", ["é fábrica", "e a fabrica"]), ("a\u0301 test", ["test"]), ("an\u00a0apple", ["apple"]),
    ("x\u2003y\u001cz", ["x y z"]), ("ÅNGSTRÖM THE", ["ångström"]), ("can't", ["cant", "can t"]), ("a_b the_c", ["ab thec"]),
    ("²a the₃", ["²a", "the₃"]), ("“the” end", ["“ ” end", "“”"]), ("東京 the 大阪", ["東京 大阪"]), ("the the a", ["an"]),
    ("one one two", ["one two two", "one one one two"]), ("İstanbul", ["istanbul", "i̇stanbul"]), ("!?.", ["..."]),
    ("٣ a ३", ["٣ ३"]), ("ⅷ a", ["ⅷ"]), ("A.", ["a"]), ("U.S.A.", ["USA", "us a"]), ("the‿a", ["‿"]), ("a😀the", ["😀"]),
]


def normalize_answer(s):
    def remove_articles(text):
        return re.sub(r"\b(a|an|the)\b", " ", text)

    def white_space_fix(text):
        return " ".join(text.split())

    def remove_punc(text):
        exclude = set(string.punctuation)
        return "".join(ch for ch in text if ch not in exclude)

    return white_space_fix(remove_articles(remove_punc(s.lower())))


def f1_of_version_1(prediction, ground_truth):
    prediction_tokens = normalize_answer(prediction).split()
    ground_truth_tokens = normalize_answer(ground_truth).split()
    common = collections.Counter(prediction_tokens) & collections.Counter(ground_truth_tokens)
    num_same = sum(common.values())
    if num_same == 0:
        return 0
    precision = 1.0 * num_same / len(prediction_tokens)
    recall = 1.0 * num_same / len(ground_truth_tokens)
    return (2 * precision * recall) / (precision + recall)


def get_tokens(s):
    return normalize_answer(s).split() if s else []


def f1_of_version_2(a_gold, a_pred):
    gold_toks, pred_toks = get_tokens(a_gold), get_tokens(a_pred)
    num_same = sum((collections.Counter(gold_toks) & collections.Counter(pred_toks)).values())
    if len(gold_toks) == 0 or len(pred_toks) == 0:
        return int(gold_toks == pred_toks)
    if num_same == 0:
        return 0
    precision = 1.0 * num_same / len(pred_toks)
    recall = 1.0 * num_same / len(gold_toks)
    return (2 * precision * recall) / (precision + recall)


def scores(found, wanted):
    version1 = [0, 0]
    if wanted:
        version1 = [max(int(normalize_answer(found) == normalize_answer(answer)) for answer in wanted),
                    max(f1_of_version_1(found, answer) for answer in wanted)]
    gold = [answer for answer in wanted if normalize_answer(answer)] or [""]
    version2 = [max(int(normalize_answer(answer) == normalize_answer(found)) for answer in gold),
                max(f1_of_version_2(answer, found) for answer in gold)]
    return {"found": found, "wanted": wanted, "normalized": normalize_answer(found), "v1": version1, "v2": version2}


def main():
    generator = random.Random(3)
    words = ["the", "The", "a", "An", "river", "River,", "of", "1066", "Norman's", "dukes", "É", "  ", "-", "(and)", "or"]
    text = lambda: " ".join(generator.choices(words, k=generator.randint(0, 7)))
    cases = CASES + [(text(), [text() for _ in range(generator.randint(0, 3))]) for _ in range(200)]
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "squad.json")
    with open(path, "w") as file:
        file.write("[" + ",\n".join(json.dumps(scores(*case)) for case in cases) + "]\n")


if __name__ == "__main__":
    main()
