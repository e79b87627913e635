#include <cstdlib>

// Memory begins as zeros: before 2.28 stb_image reads tables that a damaged JPEG lacks, and missing pixels would expose
// what the memory held.
#define STBI_MALLOC(size) std::calloc(1, size)
#define STBI_REALLOC(memory, size) std::realloc(memory, size)
#define STBI_FREE(memory) std::free(memory)
#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_RESIZE_IMPLEMENTATION
#include "data/examples/images/image_stb-inl.h"
