// Any bytes are either a model.safetensors.index.json of the shards that lie beside it, or a user error of one line.
#include <unistd.h>
#include <filesystem>
#include "base/files.h"
#include "formats/weight_files.h"
#include "fuzz/fuzzing.h"

using namespace linnet;

namespace {
// A safetensors file of one byte under each name.
std::string shard(const std::vector<std::string>& tensors) {
  std::string header = "{";
  for (size_t i = 0; i < tensors.size(); ++i)
    header += (i ? ",\"" : "\"") + tensors[i] + R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + std::to_string(i) +
              "," + std::to_string(i + 1) + "]}";
  header += "}";
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + std::string(tensors.size(), 'x');
}

std::string make_folder() {
  const std::string folder = "/dev/shm/linnet_fuzz_" + std::to_string(::getpid());
  std::filesystem::create_directories(folder + "/folder");
  write_file_atomically(folder + "/1", shard({"a", "b"}));
  write_file_atomically(folder + "/2", shard({"c"}));
  write_file_atomically(folder + "/3", shard({"a"}));
  write_file_atomically(folder + "/empty", "");
  return folder;
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string folder = make_folder();
  const std::string path = folder + "/" + kWeightsIndex;
  if (std::FILE* file = std::fopen(path.c_str(), "wb")) {
    std::fwrite(data, 1, size, file);
    std::fclose(file);
  }
  fuzzing::only_user_errors([] {
    const WeightFiles files(folder);
    fuzzing::require(files.bytes() == files.weights().size() && files.files() > 0);
    for (const WeightFiles::Weight& weight : files.weights())
      fuzzing::require(files.find(weight.entry->name) != nullptr && *weight.entry->data == std::byte('x'));
  });
  return 0;
}
