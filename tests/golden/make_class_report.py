"""class_report.json: scikit-learn's classification reports, of which every double is compared bit by bit.

    pip install scikit-learn
    python tests/golden/make_class_report.py
"""

import json
import os

import numpy as np
from sklearn.metrics import accuracy_score, classification_report, confusion_matrix
from sklearn.utils.class_weight import compute_class_weight

# classes and examples: few classes, as many as NumPy adds in lanes, and more than it adds at once
CASES = [(2, 40), (3, 60), (8, 90), (21, 400), (150, 900)]


def main() -> None:
    random = np.random.default_rng(7)
    cases = []
    for classes, examples in CASES:
        labels = random.integers(0, classes, examples) * random.integers(0, 2, examples)  # the first is frequent
        labels[:classes] = np.arange(classes)
        predicted = np.where(random.random(examples) < 0.6, labels, random.integers(0, classes, examples))
        names = [str(i) for i in range(classes)]
        report = classification_report(
            labels, predicted, labels=range(classes), target_names=names, output_dict=True, zero_division=0
        )
        row = lambda name: [report[name][key] for key in ("precision", "recall", "f1-score")]  # noqa: E731
        case = {
            "labels": labels.tolist(),
            "predicted": predicted.tolist(),
            "classes": [row(name) for name in names] if classes < 100 else [],
            "macro": row("macro avg"),
            "weighted": row("weighted avg"),
            "accuracy": accuracy_score(labels, predicted),
            "balanced": compute_class_weight("balanced", classes=np.arange(classes), y=labels).tolist(),
        }
        if classes < 10:
            case["confusion"] = confusion_matrix(labels, predicted).tolist()
        cases.append(case)
    path = os.path.join(os.path.dirname(__file__), "class_report.json")
    with open(path, "w") as file:
        json.dump(cases, file)
        file.write("\n")


if __name__ == "__main__":
    main()
