from __future__ import annotations

import pytest

from ingest.language import guess


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The letter of the clerk is in the archive, and that is not a reason for it to be read by the public.", "en"),
        ("Der Brief ist nicht in dem Archiv, und das ist auch ein Grund für die Prüfung mit dem Amt von heute.", "de"),
        ("La lettre est dans les archives et ce sont des raisons qui ne sont pas plus claires pour le public.", "fr"),
        ("La carta que está en el archivo no es para los vecinos, como se dice en las noticias de la ciudad.", "es"),
        ("این سند درباره نگهداری بایگانی شهر است و هر پرونده یک شماره و یک تاریخ دارد", "fa"),
        ("هذه الوثيقة تتعلق بحفظ أرشيف المدينة وكل ملف له رقم وتاريخ إلى نهاية السنة", "ar"),
        ("この文書は市の記録の保管について書かれています。番号と日付があります。毎年確認します。" * 2, "ja"),
        ("这份文件是关于城市档案的保存每个档案都有编号和日期每年都要检查一次并且记录结果" * 2, "zh"),
        (
            "이 문서는 도시 기록의 보관에 관한 것이며 각 파일에는 번호와 날짜가 있습니다 그리고 매년 확인합니다 정말로",
            "ko",
        ),
        ("Этот документ о хранении городского архива, и у каждого дела есть номер и дата.", "ru"),
        ("pt x = 3 y + 7 z Γ α β " * 20, ""),
        ("short", ""),
        ("", ""),
    ],
)
def test_a_guess_is_right_or_empty(text: str, language: str) -> None:
    assert guess(text) == language
