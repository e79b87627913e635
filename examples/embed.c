/* Compares sentences: the cosine of the embeddings of the first and of each other one.
 *
 *   cc -std=c11 embed.c -llinnet_c -lm -o embed && ./embed MODEL "A dog runs." "A cat sleeps." "Taxes rose." */
#include <linnet/linnet_c.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static double cosine(const float* a, const float* b, size_t width) {
  double product = 0, a_squared = 0, b_squared = 0;
  for (size_t i = 0; i < width; ++i) {
    product += (double)a[i] * b[i];
    a_squared += (double)a[i] * a[i];
    b_squared += (double)b[i] * b[i];
  }
  return product / sqrt(a_squared * b_squared);
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: %s MODEL SENTENCE...\n", argv[0]);
    return 2;
  }
  linnet_model* model;
  if (linnet_model_open(argv[1], NULL, &model) != LINNET_OK) {
    fprintf(stderr, "%s\n", linnet_last_error());
    return 2;
  }
  const size_t width = linnet_model_width(model), count = (size_t)argc - 2;
  float* rows = malloc((count * width + 1) * sizeof *rows);
  const char* const* sentences = (const char* const*)argv + 2;
  const int failed = !rows || linnet_embed(model, sentences, count, rows) != LINNET_OK;
  if (failed) fprintf(stderr, "%s\n", linnet_last_error());
  for (size_t i = 0; i < count && !failed; ++i)
    printf("%.4f  %s\n", cosine(rows, rows + i * width, width), sentences[i]);
  free(rows);
  linnet_model_close(model);
  return failed ? 1 : 0;
}
