#define STB_IMAGE_IMPLEMENTATION
#include "data/examples/images/image_stb-inl.h"
#define STB_IMAGE_RESIZE_IMPLEMENTATION
#include "data/examples/images/image_stb_resize-inl.h"
