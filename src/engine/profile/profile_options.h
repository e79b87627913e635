// Which steps of a run are profiled, and where the files go.
#pragma once
#include <cstdint>
#include <string>

namespace linnet {

// Counted from the first step that this process trains: after `skip_first` steps, `repeat` times `wait` steps that are
// not looked at, `warmup` steps that are recorded and thrown away, `active` steps that are kept.
struct ProfileOptions {
  int64_t skip_first = 0, wait = 1, warmup = 1, active = 0, repeat = 1;  // active 0: nothing is profiled
  std::string folder = "profile";                                        // made when the first file is written
  bool is_on() const { return active > 0; }
};

// "wait=1,warmup=1,active=3,repeat=2"; keys that are left out have the defaults above, `active` 3. `shown`: where the
// text comes from, for messages ("--profile"). Throws Error(kUser).
ProfileOptions parse_profile_options(const std::string& text, const std::string& shown);

// What the environment variable LINNET_PROFILE asks for, in the folder LINNET_PROFILE_FOLDER ("profile" if unset).
ProfileOptions profile_options_from_environment();

}  // namespace linnet
