/* Goes on from a prompt with a packed model, by the library that has no training:
 *
 *   linnet pack gpt2 -o gpt2.linnet --quantize int8
 *   cc -std=c11 packed.c -llinnet_c -o packed && ./packed gpt2.linnet "Once upon a time"
 */
#include <linnet/linnet_c.h>
#include <stdio.h>

static int show(void* out, const char* piece, size_t size) {
  return fwrite(piece, 1, size, out) == size && fflush(out) == 0 ? 0 : 1; /* 1 ends the text */
}

int main(int argc, char** argv) {
  linnet_model* model = NULL;
  if (argc != 3) return fputs("usage: packed MODEL.linnet PROMPT\n", stderr), 2;
  if (linnet_model_open(argv[1], NULL, &model) != LINNET_OK ||
      linnet_generate(model, argv[2], NULL, show, stdout, NULL) != LINNET_OK) {
    fprintf(stderr, "%s\n", linnet_last_error());
    return linnet_model_close(model), 1;
  }
  linnet_model_close(model);
  return putchar('\n') == '\n' ? 0 : 1;
}
