#define STB_IMAGE_IMPLEMENTATION
#include "data/image_stb-inl.h"
