# SPDX-License-Identifier: Apache-2.0
"""Programs that are run one after the other, each within a bound: for all.py and gpu_suite.py."""
from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import files
import lib
import runners


@dataclass
class Step:
    name: str
    limit_s: float
    argv: list[str]
    check: bool = False            # a wrong answer fails the suite
    state: tuple[str, Path] | None = None  # ("hot" or "cold", file or folder) before the step
    result: dict[str, Any] = field(default_factory=dict)


def run_step(step: Step, left_s: float, parts: Path, data: Path, log: Any) -> None:
    """Run one step; its outcome is 'ok', 'failed', 'skipped', 'timeout' or 'no time left'."""
    began = time.monotonic()
    if left_s < 5:
        step.result = {"outcome": "no time left"}
        return
    env = {"HEADRACE_BENCH_OUT": str(parts), "HEADRACE_BENCH_DATA": str(data),
           "PYTHONUNBUFFERED": "1"}
    text = ""
    try:
        (parts / f"{step.name}.json").unlink(missing_ok=True)
        for path in files.under(step.state[1]) if step.state else []:
            (files.heat if step.state[0] == "hot" else files.drop)(path)
        done = runners.run_child(step.argv, min(step.limit_s, left_s), env)
        text = done.out + done.err
        outcome = {0: "ok", 77: "skipped"}.get(done.code, "failed")
        step.result = {"outcome": outcome, "code": done.code}
        saved = parts / f"{step.name}.json"
        if saved.exists():
            step.result["json"] = json.loads(saved.read_text())
        elif done.code == 0 and "{" in done.out:
            step.result["json"] = runners.json_of(done.out)
        if step.check and done.code == 0 and not step.result["json"].get("verified"):
            step.result["outcome"] = "failed"
    except TimeoutError as problem:
        step.result, text = {"outcome": "timeout"}, str(problem)
    except (RuntimeError, OSError, ValueError) as problem:
        step.result, text = {"outcome": "failed"}, str(problem)
    step.result["seconds"] = time.monotonic() - began
    log.write(f"== {step.name}: {step.result['outcome']}, {step.result['seconds']:.1f} s\n"
              f"{lib.command_line(step.argv)}\n{text}\n")
    log.flush()
    step.result["text"] = text


def tell(step: Step) -> None:
    """A line for a check; for a measurement all that it printed, as it is what one came for."""
    print(f"{step.name:<32}{step.result['outcome']:<9}{step.result.get('seconds', 0):6.1f} s",
          flush=True)
    text = step.result.pop("text", "")
    if not step.check or step.result["outcome"] != "ok":
        print("".join(f"    {line}\n" for line in text.splitlines()
                      if not line.startswith(("machine", "disk ", "written"))), end="", flush=True)


def bad_steps(steps: list[Step]) -> list[str]:
    return [step.name for step in steps if step.result["outcome"] not in ("ok", "skipped")]


def save_steps(path: Path, facts: dict[str, Any], began: float, steps: list[Step]) -> None:
    path.write_text(json.dumps({
        "machine": facts, "seconds": time.monotonic() - began, "not_ok": bad_steps(steps),
        "steps": {step.name: {"command": lib.command_line(step.argv), **step.result}
                  for step in steps}}, default=str) + "\n")
