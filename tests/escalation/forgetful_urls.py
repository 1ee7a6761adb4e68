"""Addresses with one view that does not say who may."""

from django.http import HttpRequest, HttpResponse
from django.urls import include, path


def forgotten(request: HttpRequest) -> HttpResponse:
    return HttpResponse("for nobody")


urlpatterns = [path("forgotten/", forgotten), path("", include("claudeops.urls"))]
