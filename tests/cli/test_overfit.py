#!/usr/bin/env python3
"""ResNet-18 learns 100 images by heart: from files in a folder for each class, over decoding,
transforms, training and evaluation, to 100% of them right.

TEST_IMAGES names a folder of 100 classes with an image each, such as a photo of 100 of ImageNet's.
Unset: images of noise, of 48 pixels a side, which the test writes.

usage: test_overfit.py BUILD_FOLDER
"""
import os
import random
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, entries, run, timed, train  # noqa: E402

CLASSES, WRITTEN, PHOTO = 100, 48, 64  # pixels a side: of an image, and to which photos are scaled


def write_images(folder):
    source = random.Random(1)
    for label in range(CLASSES):
        os.makedirs(f"{folder}/class{label:02}")
        with open(f"{folder}/class{label:02}/image.ppm", "wb") as file:
            file.write(b"P6 %d %d 255\n" % (WRITTEN, WRITTEN))
            file.write(source.randbytes(3 * WRITTEN * WRITTEN))


def check_overfit(folder):
    images, side = os.environ.get("TEST_IMAGES"), PHOTO
    if not images:
        images, side = f"{folder}/images", WRITTEN
        write_images(images)
    place = f"{folder}/run"
    run(train("imagenet-resnet50", place, "model.depth=18", f"model.num_classes={CLASSES}",
              f"data.path={images}", "data.train=.", "data.test=.", "data.workers=1",
              f"data.transform=[resize: [{side}, {side}], normalize: {{mean: [0.485, 0.456, 0.406],"
              " std: [0.229, 0.224, 0.225]}]", "batch.global=50", "batch.eval=100",
              "optimizer.name=sgd", "optimizer.lr=0.05", "optimizer.momentum=0.9",
              "schedule.name=onecycle", "schedule.every=step", "trainer.max_epochs=20",
              "trainer.check_val_every_n_epoch=20", "log.tensorboard=false",
              "checkpoint.every_n_epochs=0", "checkpoint.save_top_k=0"))
    last = entries(place, "val")[-1]
    assert last["samples"] == CLASSES and float(last["accuracy"]) == 1, f"the end: {last}"
    done = run([TRIREME, "eval", "--checkpoint", f"{place}/checkpoints/last"])
    assert "accuracy 1, " in done.stdout and f"({CLASSES} " in done.stdout, done.stdout


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="trireme-overfit-") as temporary:
        timed(check_overfit, temporary)
