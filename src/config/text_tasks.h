// Tasks of an encoder with a head: one row each; a file in tasks/texts defines NAME_task() (docs/add_a_task.md).
#pragma once

// TASK(name, description, metrics that may choose the best weights, parameters that are trained beside adapters).
#define LINNET_TEXT_TASKS(TASK)                                                                                       \
  TASK(classification, "classification of texts", names("accuracy", "f1", "f1_macro", "f1_weighted"),                 \
      names("classifier.*", "pooler.*"))                                                                              \
  TASK(several_labels, "several labels for each text", names("f1", "f1_macro", "precision", "recall", "accuracy"),    \
      names("classifier.*", "pooler.*"))                                                                              \
  TASK(regression, "numbers for each text", names("pearson", "spearman"), names("classifier.*", "pooler.*"))          \
  TASK(token_classification, "classification of words", names("f1", "precision", "recall", "accuracy"),               \
      names("classifier.*"))                                                                                          \
  TASK(answers, "answers in texts", names("f1", "exact_match"), names("qa_outputs.*"))                                \
  TASK(embeddings, "embeddings of texts", names("spearman", "pearson", "mrr_10", "ndcg_10", "recall_1", "recall_10"), \
      names())
