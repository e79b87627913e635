// data.json in a run folder: what the training and validation data looked like, so that a resumed run notices when they
// are others now.
#pragma once
#include <string>
#include <vector>

#include "config/config.h"

namespace linnet {

struct DataFingerprint {
  struct Entry {
    std::string key;       // of the configuration: "train_source", or "data_dir" for a folder of images
    uint64_t bytes;        // of the file, or of all files in the folder
    std::string checksum;  // of samples: the first, the last and 62 blocks between; of a folder, of names and sizes
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> entries;

  // Pipes and devices are left out: they can be read only once.
  static DataFingerprint of(const Config& config);
  // Of a run folder; without entries when it has none.
  static DataFingerprint load(const std::string& folder);
  void save(const std::string& folder) const;

  const Entry* find(const std::string& key) const;
  // The keys whose data are in both and differ.
  std::vector<std::string> changes(const DataFingerprint& now) const;
};

}  // namespace linnet
