#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>
#include <filesystem>
#include <string>
#include "base/files.h"
#include "error_of.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
constexpr size_t kPage = SharedFile::kPage;

// Each test runs in a child process, whose signals and counts are its own.
class LostPages : public ::testing::Test {
 protected:
  const testing::TemporaryFolder folder_;
  const std::string path_ = folder_.write("file", std::string(4 * kPage, 'x'));
};

TEST_F(LostPages, WithoutTheHandlerAFileThatBecomesShorterEndsTheProcess) {
  const auto read = [&] {
    ::signal(SIGBUS, SIG_DFL);
    const MappedFile file(path_);
    std::filesystem::resize_file(path_, 1);
    _exit(static_cast<int>(*const_cast<const volatile std::byte*>(file.data() + 2 * kPage)));
  };
  EXPECT_EXIT(read(), ::testing::KilledBySignal(SIGBUS), "");
}

TEST_F(LostPages, ReadAsZerosAndAreToldOfTheirMappingAlone) {
  const std::string other_path = folder_.write("other", std::string(4 * kPage, 'y'));
  const auto check = [&] {
    catch_lost_pages();
    MappedFile file(path_);
    const MappedFile other(other_path);
    std::filesystem::resize_file(path_, kPage);
    if (file.data()[kPage - 1] != std::byte{'x'} || count_lost_pages() != 0) _exit(2);
    if (file.data()[2 * kPage] != std::byte{0} || file.data()[4 * kPage - 1] != std::byte{0}) _exit(3);
    if (other.data()[2 * kPage] != std::byte{'y'} || count_lost_pages() != 1) _exit(4);
    check_lost_pages(other.data());
    const std::string message = "'" + path_ + "' was cut short, or could not be read, while it was in use";
    if (error_of([&] { check_lost_pages(file.data()); }) != message) _exit(5);
    file = MappedFile();  // what was computed with it before does not become right
    if (error_of([&] { check_lost_pages(); }) != message) _exit(6);
    _exit(0);
  };
  EXPECT_EXIT(check(), ::testing::ExitedWithCode(0), "");
}

TEST_F(LostPages, OfAFileThatLiesOverOtherMemoryAreThoseOfTheFile) {
  const auto check = [&] {
    catch_lost_pages();
    const SharedFile file(path_), again(path_);
    alignas(kPage) static std::byte memory[2 * kPage];
    file.map_over(memory, 2 * kPage, 2 * kPage);
    if (memory[0] != std::byte{'x'}) _exit(2);
    std::filesystem::resize_file(path_, kPage);
    if (*const_cast<volatile std::byte*>(memory + kPage) != std::byte{0}) _exit(3);
    again.check();
    _exit(error_of([&] { file.check(); }) == "no error" ? 4 : 0);
  };
  EXPECT_EXIT(check(), ::testing::ExitedWithCode(0), "");
}

// Nothing else that SIGBUS stands for is hidden.
TEST_F(LostPages, OfFilesThatNobodyWatchesEndTheProcess) {
  const auto raise = [&] {
    catch_lost_pages();
    const MappedFile file(path_);
    std::filesystem::resize_file(path_, 1);
    unwatch_pages(file.data());
    _exit(static_cast<int>(*const_cast<const volatile std::byte*>(file.data() + 2 * kPage)));
  };
  EXPECT_EXIT(raise(), ::testing::KilledBySignal(SIGBUS), "");
}
}  // namespace
}  // namespace linnet
