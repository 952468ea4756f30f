// Bytes as hexadecimal digits and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

inline std::string to_hex(const std::uint8_t* bytes, std::size_t size) {
    std::string out;
    for (std::size_t i = 0; i < size; i++) (out += "0123456789abcdef"[bytes[i] >> 4]) += "0123456789abcdef"[bytes[i] & 15];
    return out;
}

// False where the text is no whole number of bytes.
inline bool from_hex(std::string_view text, std::vector<std::uint8_t>& out) {
    constexpr std::string_view digits = "0123456789abcdef";
    out.clear();
    for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
        const std::size_t high = digits.find(text[i]), low = digits.find(text[i + 1]);
        if (high == digits.npos || low == digits.npos) return false;
        out.push_back(static_cast<std::uint8_t>(16 * high + low));
    }
    return text.size() % 2 == 0;
}
