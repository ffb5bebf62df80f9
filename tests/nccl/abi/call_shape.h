// CallShape compares the signature of a function pointer with the letters of layouts.tsv. It finds a wrong
// parameter type, which changes no offset.
#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>

namespace sluice::nccl_layouts {

template <typename T>
constexpr char shape_letter() noexcept {
  if constexpr (std::is_pointer_v<T>) {
    return 'p';
  } else {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>,
                  "NCCL's plugin functions have integer and pointer parameters only");
    return static_cast<char>('0' + sizeof(T));
  }
}

// A type that is not a function pointer has the shape "-".
template <typename T>
struct CallShape {
  static constexpr bool is(std::string_view text) noexcept { return text == "-"; }
};

template <typename R, typename... A>
struct CallShape<R (*)(A...)> {
  static constexpr bool is(std::string_view text) noexcept {
    const char letters[] = {shape_letter<R>(), ':', shape_letter<A>()...};
    return text == std::string_view(letters, sizeof(letters));
  }
};

template <typename R, typename... A>
struct CallShape<R (*)(A...) noexcept> : CallShape<R (*)(A...)> {};

}  // namespace sluice::nccl_layouts
