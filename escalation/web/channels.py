"""Pages of notification channels: list, form, last messages, and actions on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_safe

from escalation.notifications import sending, services
from escalation.notifications.services import ButtonMessage
from escalation.queue import installation_lock
from sessions_app.access.admin_site import KnownChoices
from sessions_app.access.permissions import acting, needs
from sessions_app.access.roles import Right
from sessions_app.models import Channel, Message, TelegramBot
from sessions_app.redaction.encryption import EncryptedWithAnotherKey, address_of

ADDRESS_FIELDS = ("encrypted_address", "service")
BOTH_OR_NONE = "Quiet hours have a start and an end: give both, or none."


class AddressInput(forms.PasswordInput):
    """Text input whose value is never rendered again."""

    input_type = "text"


class TimeInput(forms.TimeInput):
    input_type = "time"

    def __init__(self) -> None:
        super().__init__(format="%H:%M")


class ChannelForm(forms.ModelForm):  # type: ignore[type-arg]
    address = forms.CharField(
        max_length=2_000,
        widget=AddressInput(
            attrs={"autocomplete": "off", "spellcheck": "false", "autocapitalize": "none"}
        ),
        help_text="mailto://user:password@example.org?to=you@example.org, ntfy://topic, "
        "slack://…, json://host/path, and a hundred others of Apprise.",
    )

    class Meta:
        model = Channel
        fields = [
            *("name", "address", "least_severity", "watches", "quiet_from", "quiet_until"),
            *("digest_at", "digest_when_quiet", "owner"),
        ]
        labels = {
            "least_severity": "Lowest severity",
            "quiet_from": "Quiet from",
            "quiet_until": "Quiet until",
            "digest_at": "Daily digest at",
            "digest_when_quiet": "Send the digest also on days without news",
            "owner": "Read by one person alone",
        }
        help_texts = {
            "quiet_from": "",
            "watches": "None ticked: all of them.",
            "quiet_until": "Local time. Only critical notifications are sent before that.",
            "digest_at": "Local time. Empty: none.",
            "owner": "Buttons and links of approvals then answer in the name of this account. "
            "Leave it empty for a channel that several people read.",
            "digest_when_quiet": "",
        }
        field_classes = {"watches": KnownChoices}
        widgets = {
            "watches": forms.CheckboxSelectMultiple,
            "quiet_from": TimeInput,
            "quiet_until": TimeInput,
            "digest_at": TimeInput,
        }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **options})
        owner = self.fields["owner"]
        assert isinstance(owner, forms.ModelChoiceField)
        owner.queryset = User.objects.filter(is_active=True).order_by("username")
        owner.empty_label = "several people"
        if self.instance.pk:
            address = self.fields["address"]
            address.required = False
            address.help_text = f"Kept: {self.instance.service}. Write one only to replace it."

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean() or self.cleaned_data
        if (cleaned.get("quiet_from") is None) != (cleaned.get("quiet_until") is None):
            self.add_error("quiet_until", BOTH_OR_NONE)
        return cleaned


# Services with fields of their own. Apprise checks the address that they make.


def _mail(given: Mapping[str, str]) -> str:
    names = {"user": "user", "pass": "password", "to": "to", "from": "user"}
    return f"mailtos://{given['host']}?{_query({key: given[name] for key, name in names.items()})}"


def _ntfy(given: Mapping[str, str]) -> str:
    server = given["host"] or "https://ntfy.sh"
    scheme = "ntfy" if server.startswith("http://") else "ntfys"
    host = server.partition("://")[2] or server
    token = f"{quote(given['token'], safe='')}@" if given["token"] else ""
    query = "?auth=token" if token else ""
    return f"{scheme}://{token}{host.rstrip('/')}/{quote(given['topic'], safe='')}{query}"


def _telegram(given: Mapping[str, str]) -> str:
    return f"tgram://{given['token']}/{quote(given['chat'], safe='')}"


def _webhook(given: Mapping[str, str]) -> str:
    scheme, _, rest = given["url"].partition("://")
    query = f"{'&' if '?' in rest else '?'}{_query({'secret': given['secret']})}"
    return f"{'webhook' if scheme == 'http' else 'webhooks'}://{rest}{query}"


def _as_given(given: Mapping[str, str]) -> str:
    return given["url"]


def _query(values: Mapping[str, str]) -> str:
    return urlencode(values, quote_via=quote)


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    label: str
    hint: str
    fields: Mapping[str, str]
    """Labels of the fields by name; one that ends with an asterisk may be empty."""
    address: Callable[[Mapping[str, str]], str]


SERVICES = {
    "mail": Service(
        label="Mail",
        hint="by your own mail server",
        fields={
            "host": "Mail server",
            "user": "Login, also the sender",
            "password": "Password",
            "to": "Recipient",
        },
        address=_mail,
    ),
    "ntfy": Service(
        label="ntfy",
        hint="push messages on the phone",
        fields={"topic": "Topic", "host": "Server (empty: ntfy.sh)*", "token": "Access token*"},
        address=_ntfy,
    ),
    "slack": Service(
        label="Slack",
        hint="an incoming webhook",
        fields={"url": "Webhook address (https://hooks.slack.com/services/…)"},
        address=_as_given,
    ),
    "telegram": Service(
        label="Telegram",
        hint="a bot of yours",
        fields={"token": "Token of the bot", "chat": "Chat number"},
        address=_telegram,
    ),
    "discord": Service(
        label="Discord",
        hint="the webhook of a text channel",
        fields={"url": "Webhook address (https://discord.com/api/webhooks/…)"},
        address=_as_given,
    ),
    "webhook": Service(
        label="Webhook",
        hint="signed JSON by POST",
        fields={
            "url": "Address (https://…)",
            "secret": "Secret that signs it (whsec_ and 24 to 64 bytes in base64)",
        },
        address=_webhook,
    ),
}


# What a request for approval looks like, made by the functions that make the messages.

SAMPLE = ButtonMessage(
    title="shop: may `docker restart web` run?",
    text="A restart needs approval.\nCommand: docker restart web\n"
    "web answers 502 since 02:14: its connection pool is exhausted.",
    link="https://…/approvals/12/",
    type="warning",
    buttons=dict.fromkeys((services.APPROVE, services.REJECT), "…"),
)
AT_ONCE = (
    "The buttons answer at once, in the name of the one person who reads the channel, once, and "
    "until the approval expires. A channel of several people gets the link alone."
)
NOTES = {
    "ntfy": f"{AT_ONCE} The phone has to reach this dashboard.",
    "telegram": f"{AT_ONCE} They need a private chat with the bot, and nothing reachable from "
    "outside: the worker asks Telegram for answers.",
    "slack": "The buttons open a page that asks again, for the one person who reads the channel. A "
    "channel of several people gets the link alone.",
    "webhook": "Signed as Standard Webhooks describes.",
}
BY_LINK = (
    "The link leads to the page; for a channel that one person reads, to one that needs no login."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    label: str
    title: str
    text: str
    buttons: tuple[str, ...] = ()
    link: str = ""
    note: str
    is_code: bool = False


def preview_of(name: str) -> Preview:
    """Return what a message looks like at a service; an unknown one gets text."""
    label = SERVICES[name].label if name in SERVICES else "Any service"
    note = NOTES.get(name, BY_LINK)
    title, text, link = SAMPLE.title, SAMPLE.text, SAMPLE.link
    match name:
        case "ntfy":
            body = services.ntfy_body(SAMPLE, "")
            buttons = tuple(act["label"] for act in body["actions"])
            return Preview(
                label=label, title=body["title"], text=body["message"], buttons=buttons, note=note
            )
        case "telegram":
            [row] = services.telegram_body(SAMPLE, 0)["reply_markup"]["inline_keyboard"]
            buttons = tuple(button["text"] for button in row)
            return Preview(
                label=label, title=title, text=text, buttons=buttons, link=link, note=note
            )
        case "slack":
            header, _section, acts = services.slack_body(SAMPLE)["blocks"]
            buttons = tuple(one["text"]["text"] for one in acts["elements"])
            return Preview(
                label=label, title=header["text"]["text"], text=text, buttons=buttons, note=note
            )
        case "webhook":
            event: dict[str, Any] = {"type": "approval.requested", "version": sending.EVENT_VERSION}
            event |= {"title": title, "severity": "warning", "watch": "shop", "approval": 12}
            event |= {"text": text, "links": {"page": link}}
            shown = json.dumps(event, indent=2, ensure_ascii=False)
            return Preview(label=label, title="", text=shown, note=note, is_code=True)
    return Preview(label=label, title=title, text=text, link=link, note=note)


def service_name(channel: Channel) -> str:
    """Return the name of a channel's service in SERVICES, or an empty string."""
    shown = channel.service.lower().replace("e-mail", "mail")
    return next((name for name in SERVICES if shown.startswith(name)), "")


def trouble_with_answers(channel: Channel) -> str:
    """Return why Telegram could not be asked for pressed buttons lately, if so."""
    try:
        chat = services.telegram_chat(address_of(channel))
    except EncryptedWithAnotherKey:
        return ""
    if chat is None:
        return ""
    return TelegramBot.objects.filter(number=chat.bot).values_list("error", flat=True).first() or ""


class ServiceForm(ChannelForm):
    """Form of a new channel, with the fields of its service in place of an address."""

    def __init__(self, service: str, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.service = SERVICES.get(service)
        if self.service is None:
            return
        del self.fields["address"]
        for name, label in self.service.fields.items():
            self.fields[f"service_{name}"] = forms.CharField(
                label=label.rstrip("*"),
                max_length=1_000,
                required=not label.endswith("*"),
                widget=AddressInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
            )
        first = ("name", *(f"service_{name}" for name in self.service.fields))
        self.order_fields(first)

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean() or self.cleaned_data
        if self.service is not None and not self.errors:
            given = {name: cleaned[f"service_{name}"].strip() for name in self.service.fields}
            cleaned["address"] = self.service.address(given)
        return cleaned


MESSAGES_SHOWN = 20
NOT_TAKEN = 422


@needs(Right.MANAGE_KEYS)
@require_safe
def channels(request: HttpRequest) -> HttpResponse:
    return show_channels(request, ServiceForm(request.GET.get("service", "")))


@needs(Right.MANAGE_KEYS)
@require_safe
def channel(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(Channel, pk=pk)
    return show_channel(request, found, ChannelForm(instance=found))


def show_channels(request: HttpRequest, form: ServiceForm) -> HttpResponse:
    """Render the list, with the errors of a form that was refused."""
    waiting = Count("messages", filter=Q(messages__state=Message.State.WAITING))
    rows = Channel.objects.annotate(waiting=waiting).order_by("name")
    service = next((name for name, one in SERVICES.items() if one is form.service), "")
    context = {
        "channels": rows.prefetch_related("watches"),
        "form": form,
        "services": SERVICES.items(),
        "service": service,
        "preview": preview_of(service),
        "zone": timezone.get_current_timezone_name(),
    }
    return render(request, "web/channels.html", context, status=_status(form))


def show_channel(request: HttpRequest, channel: Channel, form: ChannelForm) -> HttpResponse:
    context = {
        "channel": channel,
        "form": form,
        "preview": preview_of(service_name(channel)),
        "trouble": trouble_with_answers(channel),
        "messages_sent": channel.messages.all()[:MESSAGES_SHOWN],
        "zone": timezone.get_current_timezone_name(),
    }
    return render(request, "web/channel.html", context, status=_status(form))


def _status(form: ChannelForm) -> int:
    return NOT_TAKEN if form.is_bound and form.errors else 200


@acting(Right.MANAGE_KEYS)
def add_channel(request: HttpRequest) -> HttpResponse:
    form = ServiceForm(request.POST.get("service", ""), request.POST)
    if not _taken(form):
        return show_channels(request, form)
    messages.success(request, f"{form.instance.name} was added. Send a test to see it arrive.")
    return redirect("web:channel", form.instance.pk)


@acting(Right.MANAGE_KEYS)
def edit_channel(request: HttpRequest, pk: int) -> HttpResponse:
    channel = get_object_or_404(Channel, pk=pk)
    form = ChannelForm(request.POST, instance=channel)
    if not _taken(form):
        return show_channel(request, Channel.objects.get(pk=pk), form)
    messages.success(request, f"{channel.name} was changed.")
    return redirect("web:channel", pk)


@acting(Right.MANAGE_KEYS)
def test_channel(request: HttpRequest, pk: int) -> HttpResponse:
    channel = get_object_or_404(Channel, pk=pk)
    answer = sending.send_test(channel)
    if answer.ok:
        messages.success(request, f"The test was sent to {channel.name}. Check that it arrived.")
    else:
        messages.error(request, f"The test did not reach {channel.name}. {answer.error}")
    return redirect("web:channel", pk)


@acting(Right.MANAGE_KEYS)
def enable_channel(request: HttpRequest, pk: int) -> HttpResponse:
    channel = get_object_or_404(Channel, pk=pk)
    sending.set_enabled(channel, enabled=True)
    messages.success(request, f"{channel.name} is on and gets notifications from now on.")
    return redirect("web:channel", pk)


@acting(Right.MANAGE_KEYS)
def disable_channel(request: HttpRequest, pk: int) -> HttpResponse:
    channel = get_object_or_404(Channel, pk=pk)
    left = sending.set_enabled(channel, enabled=False)
    messages.warning(request, f"{channel.name} is off. {left} waiting messages are not sent.")
    return redirect("web:channel", pk)


@acting(Right.MANAGE_KEYS)
def remove_channel(request: HttpRequest, pk: int) -> HttpResponse:
    channel = get_object_or_404(Channel, pk=pk)
    if request.POST.get("confirm") != "on":
        messages.warning(request, "Nothing was removed: tick the box to confirm.")
        return redirect("web:channel", pk)
    sending.remove(channel)
    messages.success(request, f"{channel.name} was removed, with its address and its messages.")
    return redirect("web:channels")


def _taken(form: ChannelForm) -> bool:
    """Save a valid form. The address is validated last and without a lock: that takes long."""
    if not form.is_valid():
        return False
    address = form.cleaned_data["address"]
    if address and (objection := sending.set_address(form.instance, address)):
        form.add_error("address" if "address" in form.fields else None, objection)
        return False
    with installation_lock():
        return _saved(form)


def _saved(form: ChannelForm) -> bool:
    """Save the changed fields, after looking again at what may have changed meanwhile."""
    channel: Channel = form.save(commit=False)
    try:
        channel.validate_unique()
    except ValidationError as error:
        form.add_error(None, error)
        return False
    if channel._state.adding:
        channel.save()
    else:
        get_object_or_404(Channel.objects.select_for_update(), pk=channel.pk)
        columns = {field.name for field in Channel._meta.concrete_fields}
        address = ADDRESS_FIELDS if form.cleaned_data["address"] else ()
        channel.save(update_fields=columns & {*form.changed_data, *address})
    form.cleaned_data["watches"] = form.cleaned_data["watches"].all()  # without removed ones
    form.save_m2m()
    return True
