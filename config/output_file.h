// Class OutputFile writes a file that a user names: a result, a plot, a snapshot, a port, nccl.conf. Readers
// see the old content or all of the new one:
//  * A regular or a new file is written to PATH.new, which replaces PATH at the end. A link stays: its target
//    is replaced. Mode and owner of an existing file stay as far as the system permits.
//  * Where PATH cannot be replaced (a bind mount), PATH.new is copied into it at the end; in a folder that
//    permits no new file, a file without a name in the temporary folder is, or up to 64 MiB of memory. That
//    checks the space first, so that a full disk keeps the old content.
//  * Devices, FIFOs and descriptors of this process (/dev/stdout, /dev/fd/N) are written through.
//  * Directories and sockets are refused.
//
// Threads: one at a time. Errors: kSystem, "cannot write PATH: REASON".
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/result.h"

namespace sluice::config {

class OutputFile {
 public:
  // Waits up to 30 s for a reader of a FIFO, and for another process that writes PATH.new.
  [[nodiscard]] static Result<OutputFile> open(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile(const OutputFile&) = delete;
  ~OutputFile();  // without finish(), a file to be replaced keeps its content

  [[nodiscard]] Result<void> write(std::span<const std::byte> bytes);
  // Overwrites what write() has written at `position`. An error when is_seekable() is false.
  [[nodiscard]] Result<void> overwrite(size_t position, std::string_view text);
  [[nodiscard]] bool is_seekable() const noexcept { return target_ != Target::kStream; }
  // Ends the file. A file on a disk is there after a power failure once this has returned.
  [[nodiscard]] Result<void> finish();

 private:
  enum class Target : uint8_t {
    kFile,    // fd_ is temporary_, or has no name; finish() moves it to file_
    kStream,  // a device, a FIFO or a descriptor of this process
  };
  OutputFile(std::string path, std::string file) : path_(std::move(path)), file_(std::move(file)) {}
  [[nodiscard]] Result<void> open_target();
  [[nodiscard]] int open_temporary(unsigned mode);  // returns an errno
  [[nodiscard]] Result<void> open_unnamed();
  [[nodiscard]] Result<void> open_stream();
  [[nodiscard]] Result<void> copy_in_place();
  [[nodiscard]] tl::unexpected<Error> error(const std::string& reason) const;
  [[nodiscard]] tl::unexpected<Error> error(int number) const;
  [[nodiscard]] tl::unexpected<Error> write_error(int number) const;

  std::string path_;  // as the user named it
  std::string file_;  // without links
  std::string temporary_;
  std::string holder_;                                // of a file without a name: its folder, or "memory"
  size_t room_ = std::numeric_limits<size_t>::max();  // bytes that write() may still take
  Target target_ = Target::kStream;
  int fd_ = -1;
};

// Returns the name behind all links, which need not exist. With too many links, returns the last one.
[[nodiscard]] std::string follow_links(const std::string& path);

// Writes a whole file.
[[nodiscard]] Result<void> write_output_file(const std::string& path, std::string_view text);

}  // namespace sluice::config
