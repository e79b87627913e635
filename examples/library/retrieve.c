/* Answers a question from passages: the passage whose embedding is nearest to that of the question, and what a language
 * model writes behind both. Then eight threads ask the same two models at once and get the same bits.
 *
 *   retrieve ENCODER WRITER QUESTION PASSAGE...
 *
 * C11, with the header and the library that `cmake --install` has put there: cc -std=c11 retrieve.c -llinnet_c -lm */
#include <linnet/linnet_c.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>

enum { kThreads = 8 };

typedef struct question {
  linnet_model *encoder, *writer;
  const char* const* texts; /* the question, then the passages */
  size_t count;
} question;

typedef struct answer {
  size_t nearest; /* of texts */
  float cosine;
  char* text; /* given to linnet_string_free() */
} answer;

static int print_piece(void* user, const char* piece, size_t size) {
  fwrite(piece, 1, size, user);
  return 0;
}

/* The passage nearest to the question: embeddings have length 1, so that their product is the cosine. */
static linnet_status find_nearest(const question* asked, answer* found) {
  const size_t width = linnet_model_width(asked->encoder);
  float* rows = malloc(asked->count * width * sizeof *rows);
  if (!rows) return LINNET_OUT_OF_MEMORY;
  const linnet_status status = linnet_embed(asked->encoder, asked->texts, asked->count, rows);
  for (size_t i = 1; i < asked->count && status == LINNET_OK; ++i) {
    float product = 0, squared = 0, other = 0;
    for (size_t j = 0; j < width; ++j) {
      product += rows[j] * rows[i * width + j];
      squared += rows[j] * rows[j], other += rows[i * width + j] * rows[i * width + j];
    }
    const float cosine = product / sqrtf(squared * other);
    if (i == 1 || cosine > found->cosine) found->nearest = i, found->cosine = cosine;
  }
  free(rows);
  return status;
}

/* `out` hears the text as it is written; it may be NULL. */
static linnet_status ask(const question* asked, FILE* out, answer* found) {
  linnet_status status = find_nearest(asked, found);
  if (status != LINNET_OK) return status;
  const char *passage = asked->texts[found->nearest], *words = asked->texts[0];
  const size_t size = strlen(passage) + strlen(words) + 2;
  char* prompt = malloc(size);
  if (!prompt) return LINNET_OUT_OF_MEMORY;
  snprintf(prompt, size, "%s %s", passage, words);
  linnet_generate_options options;
  linnet_generate_options_init(&options);
  options.max_tokens = 12;
  options.temperature = 0;
  status = linnet_generate(asked->writer, prompt, &options, out ? print_piece : NULL, out, &found->text);
  free(prompt);
  return status;
}

typedef struct thread_answer {
  const question* asked;
  linnet_status status;
  answer found;
} thread_answer;

static int ask_in_thread(void* argument) {
  thread_answer* mine = argument;
  mine->status = ask(mine->asked, NULL, &mine->found);
  return 0;
}

/* How many of eight threads get another answer than `first`. */
static int count_different(const question* asked, const answer* first) {
  thrd_t threads[kThreads];
  thread_answer answers[kThreads];
  int started = 0, different = 0;
  for (; started < kThreads; ++started) {
    answers[started] = (thread_answer){.asked = asked};
    if (thrd_create(&threads[started], ask_in_thread, &answers[started]) != thrd_success) break;
  }
  for (int i = 0; i < started; ++i) {
    thrd_join(threads[i], NULL);
    const answer* found = &answers[i].found;
    const int equal = answers[i].status == LINNET_OK && found->nearest == first->nearest &&
                      memcmp(&found->cosine, &first->cosine, sizeof first->cosine) == 0 &&
                      strcmp(found->text, first->text) == 0;
    different += !equal;
    linnet_string_free(found->text);
  }
  return different + kThreads - started;
}

static int answer_question(const question* asked) {
  answer found = {0};
  printf("answer: ");
  if (ask(asked, stdout, &found) != LINNET_OK) {
    fprintf(stderr, "%s\n", linnet_last_error());
    return 1;
  }
  printf("\nfrom (%.4f): %s\n", (double)found.cosine, asked->texts[found.nearest]);
  const int different = count_different(asked, &found);
  printf("threads with another answer: %d of %d\n", different, kThreads);
  linnet_string_free(found.text);
  return different ? 1 : 0;
}

int main(int argc, char** argv) {
  if (argc < 5) {
    fprintf(stderr, "usage: %s ENCODER WRITER QUESTION PASSAGE...\n", argv[0]);
    return 2;
  }
  question asked = {.texts = (const char* const*)argv + 3, .count = (size_t)argc - 3};
  int result = 2;
  if (linnet_model_open(argv[1], NULL, &asked.encoder) == LINNET_OK &&
      linnet_model_open(argv[2], NULL, &asked.writer) == LINNET_OK)
    result = answer_question(&asked);
  else
    fprintf(stderr, "%s\n", linnet_last_error());
  linnet_model_close(asked.encoder);
  linnet_model_close(asked.writer);
  return result;
}
