"""What a part has done so far: one line of JSON per item, in a file that every later call goes on with.

An item that was stopped half-way (Ctrl-C, the end of the machine's time) leaves no line and runs again. So does one whose
line the end of the process cut short.
"""

import json
import os
from pathlib import Path

HERE = Path(__file__).resolve().parent
EARLIER = HERE / "results"


def results_folder() -> Path:
    """OUT if it is set, else results/ beside this file. In OUT, what results/ holds is taken over first."""
    given = os.environ.get("OUT")
    folder = Path(given) if given else EARLIER
    folder.mkdir(parents=True, exist_ok=True)
    if folder.resolve() != EARLIER and EARLIER.is_dir():
        for old in EARLIER.iterdir():
            if old.is_file() and not (folder / old.name).exists():
                (folder / old.name).write_bytes(old.read_bytes())
    return folder


class Journal:
    def __init__(self, path: Path):
        self.path = path
        self.records: list[dict] = []
        if path.exists():
            text = path.read_text()
            for line in text.splitlines():
                try:
                    self.records.append(json.loads(line))
                except ValueError:
                    pass  # cut short
            if text and not text.endswith("\n"):
                self.rewrite()

    def rewrite(self) -> None:
        draft = self.path.with_suffix(".new")
        draft.write_text("".join(json.dumps(record) + "\n" for record in self.records))
        draft.replace(self.path)

    def find(self, **wanted) -> dict | None:
        """The last record with these values."""
        return next((record for record in reversed(self.records) if wanted.items() <= record.items()), None)

    def add(self, record: dict) -> None:
        self.records.append(record)
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def forget(self, **wanted) -> None:
        self.records = [record for record in self.records if not wanted.items() <= record.items()]
        self.rewrite()
