"""Made-up clips of coloured shapes, with questions whose answers and evidence are known exactly.

`world` says what can happen, `sampler` draws a story, `render` and `encode` turn it into an mp4, `questions` asks about
it, `dataset` makes a whole set, `coarse_labels` blurs its times, `question_only` measures what guessing gets, and
`tokenizer` makes a vocabulary for models trained on nothing else.
"""
