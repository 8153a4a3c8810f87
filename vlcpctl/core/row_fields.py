"""What each field of an evaluation row means; docs/reference/rows.md is generated from this.

A field that a row may lack says when. `null` is a value: the field does not apply.
"""

from __future__ import annotations

# Of the rows of every evaluator, in the order in which they are written.
COMMON = {
    "schema": "Name and version of the format, such as `vlcpctl.eval/1.1`.",
    "run": "Name of the run: `--run` of train-step, or the method's name.",
    "method": "Method of the checkpoint, such as `ctp` or `ctp+er`; `imported` or `interpolate` "
    "for checkpoints that were not trained here.",
    "seed": "Seed of the run.",
    "buffer": "Policy and size of the replay buffer; null without one.",
    "step": "Position in the stream of the last task that the checkpoint was trained on, from 0; "
    "null if it was not trained on a stream.",
    "task_step": "Position in the stream of the evaluated task; of a merged gallery, that of its "
    "last task; null for data outside the stream.",
    "stream": "Content id of the stream of the evaluated task; null for data outside of streams.",
    "evaluator": "What was evaluated: `retrieval`, `zeroshot`, `probe` or `spatial`.",
    "protocol": "Variant of the evaluator, such as `cross-modal` and `multi-modal` of retrieval.",
    "gallery": "`own`: one task by itself; `merged`: all tasks of the stream up to a step.",
    "task": "Name of the evaluated task or data set; `merged` for a merged gallery.",
    "tasks": "Names of all tasks in the gallery.",
    "split": "Split of the evaluated data; two are joined by +, as in `query+gallery`.",
    "data": "Content id of the evaluated data.",
    "data_was": "Earlier content ids of the same data, oldest first. Only if `forget` has "
    "rewritten it.",
    "limit": "Number of samples evaluated at most (`--limit`); null for all.",
    "options": "Options that decide the numbers, defaults included. Rows that differ in them are "
    "not compared.",
    "metrics": "Measured values by name; null for one that is not defined on this data.",
    "start": "Content id of the checkpoint that the run started from; null if it was trained from "
    "scratch.",
    "parent": "Content id of the checkpoint given as `--previous`; null without one.",
    "preset": "Preset of the train-step. Only if a setting came from one.",
    "config": "Settings of the train-step: `id` and `values`; null for imported checkpoints.",
    "checkpoint": "Content id of the evaluated checkpoint.",
}

# Of some rows only: the rows, and the meaning.
SPECIAL = {
    "alpha": ("averages of two checkpoints", "Share of the second checkpoint."),
    "n_images": ("all but retrieval of fused pairs", "Number of images."),
    "n_texts": ("retrieval, spatial", "Number of captions."),
    "n_queries": ("retrieval of fused pairs", "Number of pairs used as queries."),
    "n_gallery": ("retrieval of fused pairs", "Number of pairs in the gallery."),
    "n_ties": (
        "retrieval, zeroshot, probe",
        "Number of queries whose correct answer is tied with a wrong one, and does not count.",
    ),
    "n_alone": (
        "retrieval of fused pairs",
        "Number of queries without a correct answer; they score 0.",
    ),
    "n_skipped": ("zeroshot, probe", "Number of images that could not be read."),
    "n_classes": ("zeroshot, probe", "Number of classes."),
    "n_train": ("probe", "Number of images that the probe was trained on."),
    "n_unseen": ("probe", "Number of test images whose class has no training image."),
    "strength": ("probe", "Strength of the L2 penalty, given or chosen on held-out images."),
    "fixed_strength": ("probe", "`--strength`, if it was given."),
    "train_split": ("probe", "`--train-split`, if it is not `train`."),
    "held_out": ("probe", "`--held-out`, if it is not the default."),
    "epochs": ("probe", "`--epochs`, if it is not the default."),
    "lr": ("probe", "`--lr`, if it is not the default."),
    "probe_seed": ("probe", "`--seed`, if it is not 0."),
    "prompts": ("zeroshot", "Content id of class names and prompts."),
    "duplicates": ("retrieval", "`separate`, if `--duplicates` is."),
    "map_variant": ("retrieval of fused pairs", "`--map-variant`, if it is not the default."),
    "since": (
        "spatial",
        "Earlier checkpoint that this one is compared with: run, step and content id.",
    ),
    "degrees": (
        "spatial",
        "Number of angles by measure and degree: [0, 1], (1, 2], ...; without zeros at the end.",
    ),
    "best_epoch": ("probe, protocol modx", "Epoch with the highest accuracy, from 1."),
    "last_acc1": ("probe, protocol modx", "Accuracy after the last epoch, in percent."),
}

# What `metrics` may have, by evaluator.
METRICS = {
    "retrieval": {
        "i2t_r1, i2t_r5, i2t_r10": "Recall at 1, 5 and 10 from image to text, in percent.",
        "t2i_r1, t2i_r5, t2i_r10": "The same from text to image.",
        "i2t_rmean, t2i_rmean": "Mean of the three recalls of a direction.",
        "rm": "Mean of all six recalls.",
        "map_1, map_5, map_10": "Mean average precision at 1, 5 and 10 of fused pairs, in percent.",
    },
    "zeroshot and probe": {
        "acc1, acc5": "Top-1 and top-5 accuracy, in percent.",
        "mean_per_class_recall": "Mean over classes of the share of their images that were "
        "classified correctly, in percent.",
    },
    "spatial": {
        "sam_image_*, sam_text_*": "Change in the angle between two samples, over all pairs of "
        "samples: the mean in degrees (`_mean`), and the share in each bin in percent (`_5_10` is "
        "above 5 and at most 10 degrees).",
        "ram_image_*, ram_text_*": "Angle by which a sample rotated: mean and shares.",
        "imav_i2t_*, imav_t2i_*": "Change in the angle between an image and its text, over pairs "
        "that the earlier checkpoint ranks first: mean and shares.",
    },
}
