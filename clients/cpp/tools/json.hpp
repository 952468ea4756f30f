// As much JSON as the vectors' programs need. Numbers are whole and go up to 2^64-1.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace json {

struct Value {
    enum class Kind { null, boolean, number, text, array, object } kind = Kind::null;
    bool boolean = false;
    std::uint64_t number = 0;
    std::string text;
    std::vector<Value> items;                              // of an array
    std::vector<std::pair<std::string, Value>> fields;     // of an object

    // A field of an object; null where it is not there.
    const Value& operator[](std::string_view name) const {
        static const Value missing;
        for (const auto& [field, value] : fields)
            if (field == name) return value;
        return missing;
    }
};

class Parser {
public:
    explicit Parser(std::string_view source) : source_(source) {}

    // False where the source is not one value of the kind that is known here.
    bool parse(Value& out) {
        value(out);
        spaces();
        return !failed_ && at_ == source_.size();
    }

private:
    void spaces() {
        while (at_ < source_.size() && (source_[at_] == ' ' || source_[at_] == '\t')) at_++;
    }
    bool take(std::string_view word) {
        spaces();
        const bool found = source_.substr(at_, word.size()) == word;
        if (found) at_ += word.size();
        return found;
    }
    void expect(std::string_view word) {
        if (!take(word)) failed_ = true;
    }
    void value(Value& out) {
        spaces();
        if (failed_ || at_ == source_.size()) failed_ = true;
        else if (take("null")) out.kind = Value::Kind::null;
        else if (take("true") || source_.substr(at_, 5) == "false") boolean(out);
        else if (source_[at_] == '"') text(out);
        else if (take("[")) array(out);
        else if (take("{")) object(out);
        else number(out);
    }
    void boolean(Value& out) {
        out.kind = Value::Kind::boolean;
        out.boolean = !take("false");
    }
    void number(Value& out) {
        out.kind = Value::Kind::number;
        const std::size_t start = at_;
        for (; at_ < source_.size() && source_[at_] >= '0' && source_[at_] <= '9'; at_++)
            out.number = 10 * out.number + static_cast<std::uint64_t>(source_[at_] - '0');
        if (at_ == start) failed_ = true;
    }
    void array(Value& out) {
        out.kind = Value::Kind::array;
        if (take("]")) return;
        do {
            out.items.emplace_back();
            value(out.items.back());
        } while (!failed_ && take(","));
        expect("]");
    }
    void object(Value& out) {
        out.kind = Value::Kind::object;
        if (take("}")) return;
        do {
            Value name;
            spaces();
            text(name);
            expect(":");
            out.fields.emplace_back(name.text, Value());
            value(out.fields.back().second);
        } while (!failed_ && take(","));
        expect("}");
    }
    void text(Value& out) {
        out.kind = Value::Kind::text;
        expect("\"");
        while (!failed_ && at_ < source_.size() && source_[at_] != '"') {
            if (source_[at_] == '\\') escaped(out.text);
            else out.text += source_[at_++];
        }
        expect("\"");
    }
    void escaped(std::string& out) {
        at_++;
        const char letter = at_ < source_.size() ? source_[at_++] : '\0';
        switch (letter) {
            case 'n': out += '\n'; return;
            case 't': out += '\t'; return;
            case 'r': out += '\r'; return;
            case 'b': out += '\b'; return;
            case 'f': out += '\f'; return;
            case 'u': break;
            default: out += letter; return;
        }
        std::uint32_t point = unit();
        if (point >= 0xD800 && point < 0xDC00 && take("\\u")) point = 0x10000 + ((point - 0xD800) << 10) + (unit() - 0xDC00);
        utf8(point, out);
    }
    std::uint32_t unit() {
        std::uint32_t value = 0;
        for (int i = 0; i < 4; i++) {
            const char digit = at_ < source_.size() ? source_[at_++] : '\0';
            const std::size_t found = std::string_view("0123456789abcdefABCDEF").find(digit);
            if (found == std::string_view::npos) failed_ = true;
            value = 16 * value + static_cast<std::uint32_t>(found < 16 ? found : found - 6);
        }
        return value;
    }
    static void utf8(std::uint32_t point, std::string& out) {
        const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (point >> shift & 0x3F)); };
        if (point < 0x80) out += static_cast<char>(point);
        else if (point < 0x800) out += static_cast<char>(0xC0 | point >> 6), tail(0);
        else if (point < 0x10000) out += static_cast<char>(0xE0 | point >> 12), tail(6), tail(0);
        else out += static_cast<char>(0xF0 | point >> 18), tail(12), tail(6), tail(0);
    }

    std::string_view source_;
    std::size_t at_ = 0;
    bool failed_ = false;
};

inline std::string quoted(std::string_view text) {
    std::string out = "\"";
    for (const char letter : text) {
        char escape[8];
        if (letter == '"' || letter == '\\') (out += '\\') += letter;
        else if (static_cast<unsigned char>(letter) >= 0x20) out += letter;
        else std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(letter)), out += escape;
    }
    return out += '"';
}

template <typename Items, typename Write>
std::string list(const Items& items, Write write) {
    std::string out = "[";
    for (const auto& item : items) out += (out.size() > 1 ? ", " : "") + write(item);
    return out += "]";
}

}  // namespace json
