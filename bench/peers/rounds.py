"""Which side of a comparison still has to run: the same rule on the CPU and on a GPU."""


def still_wanted(records: list[dict], side: str, turn: int, far_behind: float, all_rounds: bool = False) -> bool:
    """Whether `side` has to run in round `turn`, after the `records` of one row.

    What failed does not run again, and neither does a mode of PyTorch that reached less than `far_behind` times the
    best mode's speed in its first round.
    """
    mine = [record for record in records if record["side"] == side]
    if any(record["round"] == turn or "error" in record for record in mine):
        return False
    if side == "linnet" or not mine or all_rounds:
        return True
    best = max((record.get("median", 0) for record in records if record["side"] != "linnet"), default=0)
    return max(record["median"] for record in mine) >= far_behind * best
