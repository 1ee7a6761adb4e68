"""Text from outside, made safe for display."""

from __future__ import annotations

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from sessions_app.text import clean, cut_to_tokens, estimated_tokens, json_text, one_line
from tests.tables import each_row


@each_row(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("half\x1b[K", "half"),
        ("\x1b]0;pwned\x07", "␛]0;pwned␇"),
        ("\x1b[1A\x1b[2Jgone", "␛[1A␛[2Jgone"),
        ("\x1b]52;c;cm0gLXJm\x1b\\", "␛]52;c;cm0gLXJm␛\\"),
        ("\x9b31m", "‹U+009B›31m"),
        ("rm -rf /\rls", "rm -rf /\nls"),
        ("one\r\ntwo", "one\ntwo"),
        ("a\x08b\x00c\x7f", "a␈b␀c‹U+007F›"),
        ("x = '\u202egpj.exe'", "x = '‹U+202E›gpj.exe'"),
        ("pass\u200bword", "pass‹U+200B›word"),
        ("\U000e0072\U000e006d", "‹U+E0072›‹U+E006D›"),
        ("\ud83d", "\ufffd"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("Größe ✓ 日本 👩\u200d🚒 نص", "Größe ✓ 日本 👩\u200d🚒 نص"),
    ],
)
def test_control_characters_become_marks_and_text_is_kept(text, shown):
    assert clean(text) == shown


@given(st.text())
def test_no_control_character_is_left_and_the_result_is_stable(text):
    shown = clean(text)

    assert not [sign for sign in shown if unicodedata.category(sign) == "Cc" and sign not in "\t\n"]
    assert clean(shown) == shown
    assert "\n" not in one_line(text, 1000)
    shown.encode()


@given(st.recursive(st.text() | st.none() | st.integers(), st.lists))
def test_json_keeps_its_value_without_control_characters(value):
    text = json_text(value)

    assert json.loads(text) == value
    assert clean(text) == text


def test_json_of_hostile_text_is_readable_where_it_can_be():
    assert json_text({"Größe": "\x9b\u202e\x1b"}) == '{"Größe": "\\u009b\\u202e\\u001b"}'


# Texts with the number of tokens that a tokenizer of Claude makes of them.
MEASURED = [
    (
        "サービスが応答しないため、コンテナを再起動してください。データベースの接続エラーが続いています。",
        45,
    ),  # Japanese
    ("服务没有响应，请重新启动容器并检查数据库连接。日志显示磁盘已满。", 22),  # Chinese
    (
        "서비스가 응답하지 않으므로 컨테이너를 다시 시작하고 데이터베이스 연결을 확인하십시오.",
        51,
    ),  # Korean
    ("บริการไม่ตอบสนอง กรุณาเริ่มคอนเทนเนอร์ใหม่และตรวจสอบการเชื่อมต่อฐานข้อมูล", 128),  # Thai
    ("सेवा उत्तर नहीं दे रही है, कृपया कंटेनर को पुनः आरंभ करें और डेटाबेस कनेक्शन जांचें।", 91),  # Hindi
    (
        "Сервис не отвечает, перезапустите контейнер и проверьте соединение с базой данных.",
        37,
    ),  # Russian
    (
        "Η υπηρεσία δεν ανταποκρίνεται, επανεκκινήστε το κοντέινερ και ελέγξτε τη βάση δεδομένων.",
        95,
    ),  # Greek
    ("الخدمة لا تستجيب، يرجى إعادة تشغيل الحاوية والتحقق من اتصال قاعدة البيانات.", 67),  # Arabic
    ("השירות אינו מגיב, אנא הפעל מחדש את הקונטיינר ובדוק את החיבור.", 51),  # Hebrew
    (
        "Der Dienst antwortet nicht; bitte den Behälter für die Überwachung neu starten und die "
        "Datenbankverbindung prüfen.",
        35,
    ),  # German
    (
        "Dịch vụ không phản hồi, vui lòng khởi động lại vùng chứa và kiểm tra kết nối cơ sở "
        "dữ liệu.",
        72,
    ),  # Vietnamese
    (
        "Usługa nie odpowiada, proszę ponownie uruchomić kontener i sprawdzić połączenie z bazą.",
        36,
    ),  # Polish
    ("🔥🚒👩‍🚒❤️🇩🇪🧑🏽‍💻😀😀", 33),  # emoji
    (
        "I do not believe it. The service does not answer; restart the container and check the "
        "database connection.",
        21,
    ),  # English
    (
        'for i in $(seq 1 10); do curl -fsS -o /dev/null -w "%{http_code}\\n" '
        'http://127.0.0.1:8080/healthz || echo "fail $i" >&2; done',
        55,
    ),  # shell
    ('{"a": [1, 22, 333], "b": {"c": null}}', 18),  # JSON
    ("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", 44),  # hexadecimal
    ("SGVsbG8gV29ybGQhIFRoaXMgaXMgYmFzZTY0IGVuY29kZWQgdGV4dC4=", 37),  # base64
    ("xqzvkjwpfhgbtrmclsdnxqzvkjwpf", 16),  # random letters
    ("አገልግሎቱ ምላሽ አይሰጥም", 44),  # Amharic
    ("სერვისი არ პასუხობს, გადატვირთეთ კონტეინერი", 56),  # Georgian
    ("∀x∈ℝ: x²≥0 → √x ≤ ½·π", 21),  # symbols
    ("THE SERVICE DOES NOT ANSWER AND THE DATABASE IS DOWN", 11),  # capitals
    ("getServiceStatusFromRemoteEndpointV2", 8),  # camel case
]


@each_row(("text", "measured"), MEASURED)
def test_an_estimate_of_tokens_is_never_too_low(text, measured):
    assert measured <= estimated_tokens(text) <= 2.3 * measured


@each_row("text", [text for text, _measured in MEASURED])
def test_a_text_is_cut_to_a_number_of_tokens(text):
    cut = cut_to_tokens(text * 3, 30)

    assert 25 <= estimated_tokens(cut) <= 30
    assert text.startswith(cut.removesuffix("…")[: len(text)])


def test_a_short_text_is_not_cut():
    assert cut_to_tokens("It is down.", 30) == "It is down."


def test_a_text_without_room_is_left_out():
    assert cut_to_tokens("😀😀", 1) == ""
