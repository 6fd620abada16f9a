"""Run folders without a run: metrics.jsonl, recipe.yaml and empty folders of checkpoints, as a run
of two processes leaves them, the second of which went on from an earlier step."""
import json
import math
import os


def make_run(place, name="made", lr=1.0, steps=500, status="completed", not_finite=None):
    """Makes the folder and returns its path. `not_finite`: the step whose loss is NaN; `status`
    None: the second process was killed."""
    os.makedirs(place)
    resumed = steps // 2
    lines = []

    def begin(step):
        lines.append({"kind": "start", "step": step, "ranks": 1, "device": "cpu",
                      "total_steps": steps, "time": "2026-01-02T03:04:05Z",
                      "model": [{"block": "body", "output": "[N, 8]", "parameters": 64},
                                {"block": "head", "output": "[N, 2]", "parameters": 16}]})

    def train(first, last):
        for step in range(first, last + 1):
            loss = 0.2 + 2 * math.exp(-step * lr / 90) + 0.05 * math.sin(step * 1.7)
            lines.append({"kind": "train", "step": step, "epoch": step // 100,
                          "loss": "NaN" if step == not_finite else round(loss, 6), "lr": lr,
                          "grad_norm": 1.5, "samples": 16 * step, "samples_per_s": 900.25,
                          "wall_s": round((step - first + 1) * 0.01, 3)})
            if step % 100 == 0:
                right = round(1 - math.exp(-step * lr / 100), 4)
                lines.append({"kind": "val", "step": step, "epoch": step // 100 - 1,
                              "loss": round(loss + 0.1, 6), "accuracy": right,
                              "confusion": [[9, 1], [2, 8]], "classes": ["a<b", "c"],
                              "samples": 20})

    begin(0)
    train(1, resumed + 7)
    begin(resumed)
    train(resumed + 1, steps)
    if status:
        lines.append({"kind": "end", "status": status, "steps": steps, "wall_s": 2.5})
    with open(f"{place}/metrics.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    with open(f"{place}/recipe.yaml", "w", encoding="utf-8") as file:
        file.write(f"name: {json.dumps(name)}\nmodel: {{name: mnist-cnn}}\n"
                   "data: {name: synthetic}\nbatch: {global: 16}\n"
                   f"optimizer: {{name: adadelta, lr: {lr}}}\n")
    for step in (200, steps):
        os.makedirs(f"{place}/checkpoints/step-{step:08d}")
    os.symlink("step-00000200", f"{place}/checkpoints/best")
    os.symlink(f"step-{steps:08d}", f"{place}/checkpoints/last")
    return place
