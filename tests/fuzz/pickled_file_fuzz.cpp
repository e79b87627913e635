// Any bytes are either a file of PyTorch weights or a user error; and so is any pickle, in an archive or not.
#include "base/error.h"
#include "formats/tensor_file.h"
#include "fuzz/fuzzing.h"

using namespace linnet;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzzing::only_user_errors([&] {
    const PickledFile file(std::as_bytes(std::span(data, size)), fuzzing::kName);
    for (const TensorEntry& entry : file.entries()) {
      std::vector<int64_t> integers(static_cast<size_t>(entry.type.shape.elements()));
      std::vector<float> floats(integers.size());
      if (is_float(entry.dtype)) read_floats(entry.dtype, entry.data, std::ssize(floats), floats.data());
      else read_integers(entry.dtype, entry.data, std::ssize(integers), integers.data());
    }
  });
  fuzzing::only_user_errors([&] {
    read_pickle({reinterpret_cast<const char*>(data), size},
        [](const std::string& problem) { fail_user(std::string(fuzzing::kName) + problem); });
  });
  return 0;
}
