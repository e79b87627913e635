/* Inference with Linnet from C and from every language that calls C: a model folder or a run is opened once and asked
 * from any number of threads.
 *
 *   linnet_model* model;
 *   if (linnet_model_open("all-MiniLM-L6-v2", NULL, &model) != LINNET_OK) puts(linnet_last_error());
 *   const char* texts[] = {"A dog runs.", "A cat sleeps."};
 *   linnet_embed(model, texts, 2, rows);          rows: 2 * linnet_model_width(model) floats
 *   linnet_model_close(model);
 *
 * Every function is safe from several threads at once, also with the same model, except that linnet_model_close() must
 * be the last call with its model. A text gives the same bits whatever else is computed beside it. No function throws,
 * ends the process, or keeps a pointer that it was given. Texts are UTF-8 and end in 0. */
#ifndef LINNET_LINNET_C_H
#define LINNET_LINNET_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Marks what the library exports. */
#if defined(__GNUC__)
#define LINNET_C_API __attribute__((visibility("default")))
#else
#define LINNET_C_API
#endif

/* Grows when functions or members of options are added; what there was stays as it is. */
#define LINNET_C_VERSION 2

/* What a call comes to. */
typedef enum linnet_status {
  LINNET_OK = 0,               /* it did what was asked */
  LINNET_BAD_ARGUMENT = 1,     /* a null pointer, or a call that such a model does not answer */
  LINNET_USER_ERROR = 2,       /* a path, a file or a text that is wrong; the message says which */
  LINNET_NUMERIC_ERROR = 3,    /* the model's numbers are not finite */
  LINNET_SYSTEM_ERROR = 4,     /* the machine refuses: a file cannot be read */
  LINNET_OUT_OF_MEMORY = 5,    /* the machine has no memory left */
  LINNET_BUFFER_TOO_SMALL = 6, /* the size that is needed was stored */
  LINNET_BUSY = 7,             /* more texts wait than linnet_model_options.waiting */
  LINNET_INTERNAL_ERROR = 70   /* a mistake in Linnet */
} linnet_status;

/* "0.1.0" */
LINNET_C_API const char* linnet_version(void);
/* LINNET_C_VERSION of the library that is loaded. */
LINNET_C_API int linnet_c_version(void);
/* One line about the last call of this thread that failed; "" if none has. Valid until this thread's next call. */
LINNET_C_API const char* linnet_last_error(void);

/* A loaded model. */
typedef struct linnet_model linnet_model;

/* What a model does. */
typedef enum linnet_model_kind {
  LINNET_LANGUAGE = 0,    /* goes on from a text: linnet_generate */
  LINNET_TRANSLATION = 1, /* answers a text: linnet_generate, linnet_translate */
  LINNET_CLASSIFIER = 2,  /* linnet_classify */
  LINNET_EMBEDDER = 3     /* linnet_embed */
} linnet_model_kind;

/* How a model is opened. */
typedef struct linnet_model_options {
  size_t size;          /* sizeof(linnet_model_options); set by linnet_model_options_init() */
  int32_t threads;      /* 0: what the machine and its cgroup allow */
  int32_t slots;        /* texts that are written at once (8); more wait */
  int32_t beams;        /* the most of a search; 0: what the model's author asks for */
  int64_t max_length;   /* tokens of a text with its prompt; 0: the model's, at most 2048 */
  int64_t waiting;      /* texts that may wait (1024) */
  const char* quantize; /* how weights are kept, as `linnet generate --quantize` takes it: "int8"; NULL: as they are */
} linnet_model_options;
/* Sets the defaults, those in parentheses above. */
LINNET_C_API void linnet_model_options_init(linnet_model_options* options);

/* Loads `path`, a run or a model folder. options NULL: the defaults. On failure *model is NULL. */
LINNET_C_API linnet_status linnet_model_open(
    const char* path, const linnet_model_options* options, linnet_model** model);
/* Waits for what is computed. NULL does nothing. */
LINNET_C_API void linnet_model_close(linnet_model* model);

/* What the model does. */
LINNET_C_API linnet_model_kind linnet_model_get_kind(const linnet_model* model);
/* Numbers of a row: of an embedding, or classes. 0 for models that write texts. */
LINNET_C_API size_t linnet_model_width(const linnet_model* model);
/* The name of a class in [0, width), valid as long as the model; NULL for an index out of range. */
LINNET_C_API const char* linnet_model_class_name(const linnet_model* model, size_t index);

/* The token ids of a text, as the model gets them. Stores their number in *count. With fewer locations than that
 * (`capacity`, which may be 0) it stores nothing else and returns LINNET_BUFFER_TOO_SMALL. */
LINNET_C_API linnet_status linnet_encode(
    const linnet_model* model, const char* text, int32_t* tokens, size_t capacity, size_t* count);

/* The embedding of each text, `count` rows of linnet_model_width() floats. A text that is too long is cut. */
LINNET_C_API linnet_status linnet_embed(linnet_model* model, const char* const* texts, size_t count, float* rows);
/* The probability of each class for each text, `count` rows of linnet_model_width() floats. */
LINNET_C_API linnet_status linnet_classify(linnet_model* model, const char* const* texts, size_t count, float* rows);

/* How a text is written. */
typedef struct linnet_generate_options {
  size_t size;               /* sizeof(linnet_generate_options); set by linnet_generate_options_init() */
  int64_t max_tokens;        /* 0: as the model's author says, else 200 */
  double temperature;        /* below 0: as the model's author says, else 1; 0: always the likeliest token */
  double top_p;              /* 0: as the model's author says, else 1 */
  int64_t top_k;             /* below 0: as the model's author says, else 0, which is all */
  double repetition_penalty; /* 0: as the model's author says, else 1 */
  int32_t beams;             /* 0: as the model's author says; 1: sampling; more: a search */
  int32_t ignore_end;        /* not 0: goes on after the end of a text */
  uint64_t seed;             /* of the sampling (1) */
  const char* stop;          /* a text before which the answer ends; NULL: none */
  int32_t is_chat;           /* not 0: the prompt is a question, put by the folder's chat template */
} linnet_generate_options;
/* Sets the defaults, those in parentheses above and else what the model's author says. */
LINNET_C_API void linnet_generate_options_init(linnet_generate_options* options);

/* Hears a text piece by piece, in whole characters, in the thread that asked; `piece` is `size` bytes and ends in 0.
 * Another value than 0 ends the text. */
typedef int (*linnet_text_callback)(void* user, const char* piece, size_t size);

/* Goes on from a prompt, or answers it. options NULL: the defaults. `callback` and `text` may be NULL. *text is the
 * whole text without the prompt, to be given to linnet_string_free(). */
LINNET_C_API linnet_status linnet_generate(linnet_model* model, const char* prompt,
    const linnet_generate_options* options, linnet_text_callback callback, void* user, char** text);
/* Translates a text as `linnet translate` does. *translation is to be given to linnet_string_free(). */
LINNET_C_API linnet_status linnet_translate(linnet_model* model, const char* text, char** translation);
/* Frees a text that a function has stored. NULL does nothing. */
LINNET_C_API void linnet_string_free(char* text);

#ifdef __cplusplus
}
#endif
#endif
